r"""Tool calls in a model's reply, in the forms that models write.

Read outside thoughts, in the order in which they stand:

* `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`: JSON, also with `parameters`, with the arguments
  as a string of JSON, with a list of calls, or inside `{"type": "function", "function": {...}}`;
* `<tool_call><function=NAME><parameter=K>V</parameter></function></tool_call>`: values are taken by the type
  in the tool's schema;
* a whole reply of JSON calls, bare, after `<|python_tag|>`, or in one code fence, divided by `;` or newlines.

A call that cannot be read still has its place in the order.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from spade.types import ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"
PYTHON_TAG = "<|python_tag|>"
MAX_CALLS = 64
"""Calls of one turn that are run; further ones are left out."""

_OPEN = re.compile(r"<tool_call>\s*")
_CLOSE = re.compile(r"\s*</tool_call>")
_FUNCTION = re.compile(r"\s*<function=([^<>\s]+)>\s*")
_FUNCTION_END = re.compile(r"\s*</function>")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\s]+)>")
_FENCE = re.compile(r"```[a-z_]*\s*\n(.*?)\n?\s*```", re.S)
_BETWEEN = re.compile(r"[\s;,]*")
_ARGUMENTS = ("arguments", "parameters")


@dataclass(frozen=True, slots=True)
class Broken:
    """A call that could not be read: its text, and in a few words why."""

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply holds. `answer` is None without one; `rest` is all text outside calls that were read."""

    calls: tuple[ToolCall | Broken, ...]
    answer: str | None
    rest: str = ""


class _CallError(ValueError):
    """Why a call cannot be read."""


def read_reply(visible: str, tools: Sequence[dict[str, Any]] = ()) -> Reading:
    """Calls and answer of a reply without thoughts. Never raises; stops reading calls after `MAX_CALLS`."""
    calls: list[ToolCall | Broken] = []
    outside: list[str] = []
    rest: list[str] = []
    position = 0
    tags = _Tags(visible)
    while len(calls) < MAX_CALLS and (found := _OPEN.search(visible, position)) is not None:
        before = visible[position : found.start()]
        read, position = _block(visible, found.end(), tags, tools)
        calls += read
        broken = [c.text for c in read if isinstance(c, Broken)]
        outside += [before, *broken]
        rest += [before, visible[found.start() : position] if broken else ""]
    outside.append(visible[position:])
    rest.append(visible[position:])
    answer = _between("\n".join(outside), "<answer>", "</answer>")
    if not calls and answer is None:
        calls = _bare_calls(visible)
        rest = [] if calls and not any(isinstance(c, Broken) for c in calls) else rest
    return Reading(tuple(calls[:MAX_CALLS]), None if answer is None else answer.strip(), "".join(rest))


class _Tags:
    """Where the call tags of a text stand."""

    def __init__(self, text: str) -> None:
        self._opens = [m.start() for m in re.finditer(OPEN, text)]
        self._closes = [m.start() for m in re.finditer(CLOSE, text)]
        self._end = len(text)

    def next(self, start: int) -> tuple[int, int]:
        """The first opening and closing tag from `start` on; the end of the text where there is none."""
        rows = (self._opens, self._closes)
        at = [bisect_left(row, start) for row in rows]
        opener, closing = (row[k] if k < len(row) else self._end for row, k in zip(rows, at, strict=True))
        return opener, closing


def _between(text: str, start: str, stop: str) -> str | None:
    head = text.find(start)
    tail = text.find(stop, head) if head >= 0 else -1
    return text[head + len(start) : tail] if tail >= 0 else None


def _block(
    text: str, start: int, tags: _Tags, tools: Sequence[dict[str, Any]]
) -> tuple[list[ToolCall | Broken], int]:
    """The calls of the block that begins at `start`, and where to read on."""
    opener, closing = tags.next(start)
    unclosed = closing == len(text) or opener < closing
    end = opener if unclosed else closing
    inside, rest = text[start:end], end if unclosed else end + len(CLOSE)
    if text.startswith("<function=", start):
        reason = f"{CLOSE} is missing"
        if not unclosed:
            try:
                return list(_functions(inside, tools)), rest
            except _CallError as error:
                reason = str(error)
        return [Broken(inside, reason)], rest
    try:
        value, stop = _decode(text, start)
        if (found := _CLOSE.match(text, stop)) is not None:
            return _calls_of(value, text[start:stop]), found.end()
        reason = f"{CLOSE} is missing" if tags.next(stop)[1] == len(text) else "text after the JSON value"
    except (ValueError, RecursionError):
        reason = "not JSON"
    return [Broken(inside, reason)], rest


# --- JSON ----------------------------------------------------------------------------------------------


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"the constant {name}")


_decode = json.JSONDecoder(parse_constant=_refuse).raw_decode


def _calls_of(value: Any, text: str) -> list[ToolCall | Broken]:
    """The calls that a JSON value stands for."""
    rows = value if isinstance(value, list) and value else [value]
    calls: list[ToolCall | Broken] = []
    for row in rows:
        try:
            calls.append(_call_of(row))
        except _CallError as error:
            calls.append(Broken(text, str(error)))
    return calls


def _call_of(row: Any) -> ToolCall:
    if isinstance(row, dict) and "name" not in row and isinstance(row.get("function"), dict):
        row = row["function"]
    if not isinstance(row, dict):
        raise _CallError("a call is a JSON object")
    name = row.get("name")
    if not isinstance(name, str) or not name:
        raise _CallError("the call has no name")
    arguments: Any = next((row[key] for key in _ARGUMENTS if key in row), {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}", parse_constant=_refuse)
        except (ValueError, RecursionError):
            raise _CallError("the arguments are not JSON") from None
    if not isinstance(arguments, dict):
        raise _CallError("the arguments are not a JSON object")
    return _sendable(ToolCall(name, arguments))


def _sendable(call: ToolCall) -> ToolCall:
    """The call, if it can be written as strict JSON (1e999 is read as infinity)."""
    try:
        json.dumps(call.arguments, allow_nan=False)
    except (ValueError, RecursionError):
        raise _CallError("a number in the arguments is out of range") from None
    return call


def _bare_calls(visible: str) -> list[ToolCall | Broken]:
    """Calls of a reply that is nothing but JSON calls; after `<|python_tag|>` anything else is broken."""
    _, tag, body = visible.rpartition(PYTHON_TAG)
    body = body.strip()
    fenced = _FENCE.fullmatch(body)
    if fenced is not None:
        body = fenced.group(1).strip()
    calls: list[ToolCall | Broken] = []
    position = 0
    try:
        while position < len(body) and len(calls) < MAX_CALLS:
            value, position = _decode(body, position)
            rows = value if isinstance(value, list) else [value]
            if not rows or not all(
                isinstance(r, dict) and "name" in r and any(k in r for k in _ARGUMENTS) for r in rows
            ):
                raise _CallError("a call needs name and parameters")
            calls += _calls_of(value, body)
            between = _BETWEEN.match(body, position)
            position = between.end() if between else position
    except (ValueError, RecursionError):
        return [Broken(body, "not JSON calls")] if tag else []
    return calls


# --- XML -----------------------------------------------------------------------------------------------


def _functions(inside: str, tools: Sequence[dict[str, Any]]) -> list[ToolCall]:
    """The `<function=...>` elements of one block."""
    calls: list[ToolCall] = []
    position = 0
    while inside[position:].strip():
        head = _FUNCTION.match(inside, position)
        if head is None:
            raise _CallError("text outside the function")
        position = head.end()
        types = _types(head.group(1), tools)
        arguments: dict[str, Any] = {}
        while (key := _PARAMETER.match(inside, position)) is not None:
            stop = inside.find("</parameter>", key.end())
            if stop < 0:
                raise _CallError("</parameter> is missing")
            name = key.group(1)
            arguments[name] = _value(inside[key.end() : stop], types.get(name))
            position = stop + len("</parameter>")
        tail = _FUNCTION_END.match(inside, position)
        if tail is None:
            raise _CallError("</function> is missing")
        position = tail.end()
        calls.append(_sendable(ToolCall(head.group(1), arguments)))
    return calls


def _types(name: str, tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Argument name to JSON schema type, of one tool; empty when the tool is unknown."""
    for tool in tools:
        function = tool.get("function", tool)
        if isinstance(function, dict) and function.get("name") == name:
            parameters = function.get("parameters")
            properties = parameters.get("properties") if isinstance(parameters, dict) else None
            rows = properties.items() if isinstance(properties, dict) else ()
            return {k: v.get("type") for k, v in rows if isinstance(v, dict)}
    return {}


def _value(text: str, kind: Any) -> Any:
    """The value of one XML argument: text for strings, else JSON where it is JSON.

    One newline at either end belongs to the layout. Where no type is declared, a quoted string keeps its
    quotes.
    """
    text = text.removeprefix("\n").removesuffix("\n")
    if kind == "string":
        return text
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) and kind is None else value
