"""Messages as the OpenAI protocol writes them, and back.

Our messages have no call ids: the results of a reply's calls follow it in the order of the calls. On the wire
the ids are made up from the place of a call in the conversation, so the same conversation has the same ids.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from spade.serving.thoughts import strip_thoughts
from spade.types import Message, ToolCall


def to_wire(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages for a request. Results that answer no structured call become messages of the user, and
    earlier thoughts are left out, as endpoints ask for."""
    out: list[dict[str, Any]] = []
    waiting: list[str] = []
    joined = False
    for number, message in enumerate(messages):
        if message.role == "tool" and waiting:
            out.append({"role": "tool", "tool_call_id": waiting.pop(0), "content": message.content})
        elif message.role == "tool":
            if joined:
                out[-1]["content"] += f"\n{message.content}"
            else:
                out.append({"role": "user", "content": message.content})
            joined = True
            continue
        else:
            said = strip_thoughts(message.content) if message.role == "assistant" else message.content
            row: dict[str, Any] = {"role": message.role, "content": said}
            waiting = [f"call_{number}_{k}" for k in range(len(message.tool_calls))]
            if waiting:
                row["content"] = said or None
                row["tool_calls"] = [
                    wire_call(c, i) for c, i in zip(message.tool_calls, waiting, strict=True)
                ]
            out.append(row)
        joined = False
    return out


def wire_call(call: ToolCall, call_id: str) -> dict[str, Any]:
    """One call of an assistant's message."""
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def read_wire_calls(rows: Any) -> tuple[tuple[ToolCall, ...], tuple[str, ...]]:
    """The calls of an assistant's message, and in a few words what could not be read."""
    calls: list[ToolCall] = []
    problems: list[str] = []
    for row in rows if isinstance(rows, list) else []:
        function = row.get("function") if isinstance(row, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str) or not name:
            problems.append("the call has no name")
            continue
        arguments = function.get("arguments")
        try:
            value = json.loads(arguments or "{}") if not isinstance(arguments, dict) else arguments
        except (ValueError, RecursionError, TypeError):
            problems.append("the arguments are not JSON")
            continue
        if isinstance(value, dict):
            calls.append(ToolCall(name, value))
        else:
            problems.append("the arguments are not a JSON object")
    return tuple(calls), tuple(problems)


def wire_text(content: Any) -> str:
    """The text of a content: a string, text parts, or nothing."""
    if isinstance(content, list):
        return "".join(str(p.get("text") or "") for p in content if isinstance(p, dict))
    return content if isinstance(content, str) else ""


def wire_tools(tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Function schemas in their wrapper."""
    return [t if "function" in t else {"type": "function", "function": t} for t in tools]
