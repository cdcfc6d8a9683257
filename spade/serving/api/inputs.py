"""Messages, tools and prompts of a request as ours."""

from __future__ import annotations

import json
from typing import Any

from spade.serving.api.errors import ApiError
from spade.serving.api.fields import LARGEST, ChatFields
from spade.serving.thoughts import CLOSE_THOUGHT, OPEN_THOUGHT
from spade.serving.wire import read_wire_calls
from spade.types import Message

CALL = "<tool_call>"
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def read_messages(rows: list[Any]) -> list[Message]:
    """The conversation; results of calls in the order of the calls. Raises ApiError for what cannot be."""
    out: list[Message] = []
    order: dict[str, int] = {}
    results: list[tuple[int, Message]] = []
    for number, row in enumerate(rows):
        where = f"messages[{number}]"
        if not isinstance(row, dict) or row.get("role") not in ROLES:
            raise ApiError(f"{where} has no role of {', '.join(ROLES)}.", param=where)
        if row["role"] == "tool":
            place = order.get(str(row.get("tool_call_id")), len(order) + len(results))
            results.append((place, Message("tool", _content(row, where), name=_name(row))))
            continue
        out += [message for _, message in sorted(results, key=lambda pair: pair[0])]
        results, order = [], {}
        message = _message(row, where)
        if message.tool_calls:
            ids = [str(c.get("id")) for c in row["tool_calls"] if isinstance(c, dict)]
            order = {call_id: k for k, call_id in enumerate(ids)}
        out.append(message)
    return out + [message for _, message in sorted(results, key=lambda pair: pair[0])]


def _message(row: dict[str, Any], where: str) -> Message:
    content = _content(row, where)
    if row["role"] != "assistant":
        return Message(ROLES[row["role"]], content, name=_name(row))  # type: ignore[arg-type]
    thought = row.get("reasoning_content") or row.get("reasoning")
    if isinstance(thought, str) and thought:
        content = f"{OPEN_THOUGHT}\n{thought}\n{CLOSE_THOUGHT}\n\n{content}"
    calls, problems = read_wire_calls(row.get("tool_calls"))
    if problems:
        raise ApiError(f"{where}.tool_calls cannot be read: {problems[0]}.", param=f"{where}.tool_calls")
    return Message("assistant", content, calls, _name(row))


def _name(row: dict[str, Any]) -> str | None:
    name = row.get("name")
    return name if isinstance(name, str) else None


def _content(row: dict[str, Any], where: str) -> str:
    content = row.get("content")
    if isinstance(content, str):
        return content
    if content is None and row["role"] == "assistant":
        return ""
    if isinstance(content, list):
        texts = [p.get("text") for p in content if isinstance(p, dict) and p.get("type") == "text"]
        if len(texts) == len(content) and all(isinstance(t, str) for t in texts):
            return "".join(str(t) for t in texts)
    raise ApiError(f"{where}.content must be text or text parts.", param=f"{where}.content")


def read_tools(fields: ChatFields) -> tuple[list[dict[str, Any]], str]:
    """The tools that the model is shown, and what its reply has to begin with ("" mostly).

    A call is forced by putting its beginning into the model's mouth. Raises ApiError for a bad tool or
    choice.
    """
    for number, tool in enumerate(fields.tools):
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if tool.get("type", "function") != "function" or not isinstance(name, str) or not name:
            raise ApiError(f"tools[{number}] is not a function with a name.", param=f"tools[{number}]")
    choice = fields.tool_choice
    if choice == "none" or (choice == "auto" and not fields.tools):
        return [], ""
    if choice == "auto":
        return fields.tools, ""
    if choice == "required" and fields.tools:
        return fields.tools, f"{CALL}\n"
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if name not in [tool["function"]["name"] for tool in fields.tools]:
        raise ApiError(
            "tool_choice must be auto, none, required, or a function of tools.", param="tool_choice"
        )
    return fields.tools, f'{CALL}\n{{"name": {json.dumps(name)}, "arguments":'


def read_prompts(prompt: str | list[Any]) -> list[str | list[int]]:
    """The prompts of a completion request: a text, ids, or a list of either. Raises ApiError otherwise."""
    if isinstance(prompt, str):
        return [prompt]
    if prompt and all(_is_id(t) for t in prompt):
        return [prompt]
    whole = [isinstance(p, str) or (isinstance(p, list) and all(map(_is_id, p))) for p in prompt]
    if not whole or not all(whole):
        raise ApiError("prompt must be a text, a list of token ids, or a list of either.", param="prompt")
    return list(prompt)


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST
