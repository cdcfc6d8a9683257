"""What a reply calls, in either style, and what of it may not be run."""

from __future__ import annotations

import builtins
from collections.abc import Container, Mapping

from spade.serving.calls import MAX_CALLS as MAX_READ
from spade.serving.chat import ChatCompletion
from spade_evals.grade.calls import Call, Refusal, RefusalCode, Refused
from spade_evals.grade.calls_reader import Reading, read_calls


def calls_of(
    reply: ChatCompletion, style: str, known: Container[str], names_as_text: bool = False
) -> Reading:
    """The calls of a reply. One that may not be run refuses all of them.

    `known` are the functions on offer: another name is an error for the model to read, unless it is one of
    Python's own, which is refused.
    """
    if style == "tools":
        reading = _native(reply)
    else:
        reading = read_calls(bracketed(reply.text), names_as_text)
    for call in reading.calls:
        if call.name not in known and hasattr(builtins, call.name.partition(".")[0]):
            return Reading(refused=Refusal(RefusalCode.BUILTIN, call.name))
    return reading


def bracketed(text: str) -> str:
    """The text without a bare fence and with the brackets that models leave out, as upstream takes it."""
    text = text.strip("`\n ")
    text = text if text.startswith("[") else f"[{text}"
    return text if text.endswith("]") else f"{text}]"


def _native(reply: ChatCompletion) -> Reading:
    if len(reply.tool_calls) >= MAX_READ:  # further ones are not even read
        return Reading(refused=Refusal(RefusalCode.TOO_MANY, f"{MAX_READ} calls or more"))
    try:
        return Reading(tuple(Call.of(call.name, call.arguments) for call in reply.tool_calls))
    except Refused as refused:
        return Reading(refused=refused.refusal)


def renamed(calls: tuple[Call, ...], names: Mapping[str, str]) -> tuple[Call, ...]:
    """The calls with the names of `names` replaced."""
    return tuple(Call(names.get(c.name, c.name), c.args, c.kwargs) for c in calls)
