"""Reads calls out of an agent's reply, as leniently as the published loops do; nothing is evaluated."""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from typing import Any

from spade_evals.grade.calls import Refusal, RefusalCode
from spade_evals.grade.calls_reader import Reading, read_calls


def calls_in(text: str) -> Reading:
    """The calls of a reply, read as leniently as published: a blank before it is dropped, missing brackets
    are added.

    What is no literal is refused where the reply is meant as calls, that is, begins with a bracket; elsewhere
    it is prose with a parenthesis in it.
    """
    inner = text[1:] if text.startswith(" ") else text
    inner = inner if inner.startswith("[") else f"[{inner}"
    inner = inner if inner.endswith("]") else f"{inner}]"
    inner = inner.strip("[]'")
    found = read_calls(f"[{inner}]")
    prose = not text.lstrip().startswith("[")
    if prose and found.refused is not None and found.refused.code is RefusalCode.NOT_LITERAL:
        return Reading()
    if any(hasattr(builtins, call.name) for call in found.calls):
        return Reading(refused=Refusal(RefusalCode.BUILTIN, "a function of Python"))
    if any(isinstance(value, dict) for call in found.calls for value in call.kwargs.values()):
        return Reading()  # a mapping as a whole argument is no call to the published reader either
    return found


def bracketed_calls(text: str) -> Reading:
    """The same for a multi-turn item, where a reply without brackets on one line goes to the user."""
    return calls_in(text) if re.search(r"\[.*\]", text) else Reading()


def executed(messages: Sequence[dict[str, Any]]) -> list[str]:
    """What the agent had executed, in order: the texts that milestones are compared with."""
    return [str(m["content"]) for m in messages if m["role"] == "assistant" and m.get("to") == "execution"]
