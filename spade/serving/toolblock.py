"""Tools and their results as plain text, for chat templates that have no place for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from spade.types import Message, ToolCall

HOW = (
    "To call a tool, write a line\n"
    '<tool_call>{"name": "TOOL", "arguments": {"ARGUMENT": VALUE}}</tool_call>\n'
    "Several calls in one reply are run in order, and you are shown what each of them returns. When "
    "everything the user asked for is done, reply <answer>done</answer>."
)


def tool_block(tools: Sequence[dict[str, Any]]) -> str:
    """The tools, one JSON line each, and how to call them."""
    rows = [json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools]
    return "\n".join(["You can use these tools:", *rows, "", HOW])


def with_tool_block(
    messages: Sequence[Message], tools: Sequence[dict[str, Any]], system: bool = True
) -> list[Message]:
    """The conversation with the tools in its system message, or without `system` before its first message."""
    block = tool_block(tools)
    first = messages[0] if messages else None
    if system and (first is None or first.role != "system"):
        return [Message("system", block), *messages]
    if first is None:
        return [Message("user", block)]
    order = (first.content, block) if first.role == "system" else (block, first.content)
    return [Message(first.role, "\n\n".join(order)), *messages[1:]]


def call_markup(call: ToolCall) -> str:
    """One call as text, in the form that `HOW` asks for."""
    text = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    return f"<tool_call>{text}</tool_call>"


def without_structured_calls(messages: Iterable[Message]) -> list[Message]:
    """The calls of assistant messages as text behind what they say."""
    return [
        replace(m, content="\n".join([m.content] * bool(m.content) + [call_markup(c) for c in m.tool_calls]),
                tool_calls=()) if m.tool_calls else m
        for m in messages
    ]  # fmt: skip


def without_tool_role(messages: Iterable[Message]) -> list[Message]:
    """Results of tools as messages of the user; neighbouring ones become one, roles go on alternating."""
    out: list[Message] = []
    joined = False
    for message in messages:
        if message.role != "tool":
            out.append(message)
            joined = False
        elif joined:
            out[-1] = Message("user", f"{out[-1].content}\n{message.content}")
        else:
            out.append(Message("user", message.content))
            joined = True
    return out


def without_system_role(messages: Sequence[Message]) -> list[Message]:
    """A leading system message put before the user's first one."""
    if len(messages) < 2 or messages[0].role != "system" or messages[1].role != "user":
        return list(messages)
    return [Message("user", f"{messages[0].content}\n\n{messages[1].content}"), *messages[2:]]
