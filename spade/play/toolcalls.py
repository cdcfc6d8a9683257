r"""Tool calls of the Agent, and the one form that environment programs read.

`spade.serving.calls` reads the forms that models write. `<answer>...</answer>` outside every call takes
precedence: no call of that turn is run. A call that cannot be read still has its place in the order, and the
environment's own message is the result the player sees.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from spade.envs.contract import MAX_ACTION_CHARS
from spade.play.actions import Action, strip_thoughts
from spade.serving.calls import CLOSE, OPEN, read_reply
from spade.serving.calls import MAX_CALLS as MAX_CALLS
from spade.serving.calls import Broken as Broken
from spade.types import Message, ToolCall

BROKEN_CHARS = 200
"""Characters of an unreadable call that are handed on."""


def opening(instruction: str, hint: str | None) -> Message:
    """The first message of a tool-use episode: what the user asks for, the hint last in the hinted arm."""
    return Message("user", instruction if hint is None else f"{instruction}\n\nHINT: {hint}")


def call_text(call: ToolCall) -> str:
    """One call as programs read it. Markup inside the arguments is escaped and cannot end the call."""
    return _tagged({"name": call.name, "arguments": call.arguments})


def _tagged(value: Any) -> str:
    text = json.dumps(value)
    if "<" in text:  # only inside strings
        text = text.replace("<", "\\u003c")
    return f"{OPEN}{text}{CLOSE}"


class ToolCodec:
    """Tool calls and `<answer>`; everything else is handed on as it is, for the program to reject."""

    instruction = "Do what the user asks with tool calls, then answer done."

    def parse(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> Action:
        """Read one reply. Arguments in XML form get the types of the schemas in `tools`."""
        visible = strip_thoughts(text).strip()[:MAX_ACTION_CHARS]
        reading = read_reply(visible, tools)
        if reading.answer is not None:
            return Action(reading.answer, f"<answer>{reading.answer}</answer>")
        calls = tuple(c for c in reading.calls if isinstance(c, ToolCall))
        if not reading.calls:
            return Action(None, visible, problem="no tool call and no answer")
        wrapped = "\n".join(
            call_text(c) if isinstance(c, ToolCall) else _tagged(c.text[:BROKEN_CHARS]) for c in reading.calls
        )
        first = reading.calls[0]
        problem = "" if calls or isinstance(first, ToolCall) else f"unreadable tool call: {first.reason}"
        return Action(wrapped, wrapped[:MAX_ACTION_CHARS], calls, problem)

    def wrap(self, text: str) -> str:
        """The text itself: programs state their solutions in the form they read."""
        return text.strip()[:MAX_ACTION_CHARS]
