"""`ToolEnv`, the base class of tool-use environment programs.

The sandbox worker executes this file's source inside the program's namespace, so it imports the standard
library only and knows nothing of the rest of SPADE. A tool-use program subclasses `ToolEnv`, lists its
tools, and in `setup` builds a state and the instructions, each with a predicate on the state. Instructions
are revealed one at a time; the episode is won by `<answer>done</answer>` once every predicate has held in
order. Turns are plain text with `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` blocks (the
format chat templates write for tool calls). Malformed turns cost nothing but the turn.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any, ClassVar

CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.S)
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.S)


class ToolEnv:
    """Base class: a subclass gives `tools`, `setup(rng)`, a method `tool_NAME` per tool, and `solution()`."""

    game_type = "tool_use"
    max_turns = 12
    tools: ClassVar[dict[str, dict[str, Any]]] = {}
    """Tool name to {"description": str, "parameters": {argument name: JSON type name}}."""

    state: dict[str, Any]
    tasks: list[tuple[str, Callable[[dict[str, Any]], bool]]]
    current: int
    t: int

    def setup(self, rng: random.Random) -> None:
        """Fill `self.state` (a dict) and `self.tasks`, a list of (instruction, predicate on the state)."""
        raise NotImplementedError

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode; the first observation is the first instruction."""
        self.state, self.tasks, self.current, self.t = {}, [], 0, 0
        self.setup(random.Random(seed))
        return self.tasks[0][0], {"tools": self.schemas()}

    def schemas(self) -> list[dict[str, Any]]:
        """The tools in the OpenAI function format."""
        out = []
        for name, tool in self.tools.items():
            properties = {k: {"type": v} for k, v in tool["parameters"].items()}
            schema = {"type": "object", "properties": properties, "required": list(properties)}
            function = {"name": name, "description": tool["description"], "parameters": schema}
            out.append({"type": "function", "function": function})
        return out

    def call(self, tool: str, **arguments: Any) -> str:
        """The action text of one tool call; `solution()` is a list of these and `self.answer`."""
        return "<tool_call>" + json.dumps({"name": tool, "arguments": arguments}) + "</tool_call>"

    answer = "<answer>done</answer>"

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Run every call of one turn, or check the answer. An answer takes precedence over calls."""
        self.t += 1
        said = ANSWER.search(action)
        if said:
            done = said.group(1).strip() == "done" and self.current >= len(self.tasks)
            text = "all done" if done else "not yet: " + self.tasks[min(self.current, len(self.tasks) - 1)][0]
            return text, float(done), done, self.t >= self.max_turns, {}
        calls = CALL.findall(action)
        text = "\n".join(self.run(c) for c in calls) if calls else "call a tool or answer done"
        return text, 0.0, False, self.t >= self.max_turns, {}

    def run(self, text: str) -> str:
        """Execute one call given as JSON text; every mistake becomes a readable message."""
        try:
            call = json.loads(text)
            name, arguments = call["name"], call["arguments"]
        except (ValueError, KeyError, TypeError):
            return "error: a call needs name and arguments"
        if name not in self.tools:
            return "error: no such tool"
        if not isinstance(arguments, dict) or set(arguments) != set(self.tools[name]["parameters"]):
            return "error: arguments are " + ", ".join(self.tools[name]["parameters"])
        try:
            result = getattr(self, "tool_" + name)(**arguments)
        except (KeyError, ValueError, TypeError, IndexError, AttributeError):
            result = "error: bad argument"
        return str(result) + self.advance()

    def advance(self) -> str:
        """Move to the next instruction when the current predicate holds; its text joins the tool's result."""
        if self.current < len(self.tasks) and self.tasks[self.current][1](self.state):
            self.current += 1
            rest = self.tasks[self.current :]
            return "\nnext: " + rest[0][0] if rest else "\nanswer done"
        return ""
