"""`ToolEnv`, the base class of tool-use environment programs, and how a turn of one is read.

The sandbox worker executes this file's source and gives `ToolEnv` to every program, so it imports the
standard library only and knows nothing of the rest of SPADE (arXiv 2608.19197, section on tool use).

A turn is plain text: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` blocks, run in order, or
`<answer>done</answer>`, which takes precedence over calls. Instructions of the user are revealed one at a
time, each with a predicate on the state; the call that fulfils one gets the next one with its result. The
answer is accepted once every predicate has held in order; before, it is met by a reminder. Unknown tools,
malformed calls, wrong arguments and exceptions of a tool become text and cost nothing but the turn.

How the parent sees it (`spade.envs.wire.Op`): `tools(i)` after a reset gives `schemas()`, the tools in the
OpenAI function format; one turn is one `step`, whose observation joins the results of all calls by newlines;
`results(i)` gives them one by one, for one message a call; `criteria(i)` reports the predicates' values.

A program is written in either of two styles:

* short: class attribute `tools`, `setup(rng)` filling `self.state` and `self.tasks` (pairs of instruction and
  predicate), one method `tool_NAME` a tool;
* long: its own `reset(seed)` that sets `_state`, `_tools`, `_user_messages`, `_message_criteria`,
  `_current_msg = 0` and returns the first message.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

_CALL = re.compile(r"<tool_call>\s*")
_CALL_END = re.compile(r"\s*</tool_call>")
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.S)
_decode = json.JSONDecoder().raw_decode

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
"""Python types of the JSON schema types."""


class Turn(NamedTuple):
    """One turn as read: the text between each pair of call tags, and the answer if there is one."""

    calls: list[str]
    answer: str | None


def read_turn(text: str) -> Turn:
    """Calls and answer of a turn. A call's JSON is read to its end, so tags inside its texts do not count."""
    calls: list[str] = []
    outside: list[str] = []
    position = 0
    while (found := _CALL.search(text, position)) is not None:
        outside.append(text[position : found.start()])
        try:
            end = _decode(text, found.end())[1]
            closing = _CALL_END.match(text, end)
        except (ValueError, RecursionError):
            closing = None
        if closing is None:
            stop = text.find("</tool_call>", found.end())
            end = len(text) if stop < 0 else stop
            position = end + len("</tool_call>")
        else:
            position = closing.end()
        calls.append(text[found.end() : end])
    outside.append(text[position:])
    answer = _ANSWER.search(" ".join(outside))
    return Turn(calls, answer.group(1).strip() if answer else None)


def schema_of(parameters: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema: the one given, or the one that {argument: type name or its schema} stands for."""
    if parameters.get("type") == "object" and isinstance(parameters.get("properties", {}), dict):
        return parameters
    properties = {k: v if isinstance(v, dict) else {"type": v} for k, v in parameters.items()}
    return {"type": "object", "properties": properties, "required": list(properties)}


def argument_error(schema: dict[str, Any], arguments: Any) -> str | None:
    """What is wrong with a call's arguments, or None: missing, unknown, of another type, not in the enum."""
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    if not isinstance(arguments, dict) or set(required) - set(arguments) or set(arguments) - set(properties):
        return "error: arguments are " + ", ".join(properties)
    for name, value in arguments.items():
        kind, allowed = properties[name].get("type"), properties[name].get("enum")
        kinds = kind if isinstance(kind, list) else [kind]
        if kind is not None and not any(_is(value, k) for k in kinds):
            return f"error: {name} must be of type {' or '.join(map(str, kinds))}"
        if allowed is not None and value not in allowed:
            return f"error: {name} must be one of " + ", ".join(map(str, allowed))
    return None


def _is(value: Any, kind: Any) -> bool:
    if isinstance(value, bool):
        return bool(kind == "boolean")
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()  # JSON schema counts 2.0 as an integer
    return isinstance(value, TYPES.get(kind, (object,)))


class ToolEnv:
    """Base class: a subclass gives `tools`, `setup(rng)`, a method `tool_NAME` per tool, and `solution()`."""

    game_type = "tool_use"
    max_turns = 12
    answer = "<answer>done</answer>"
    tools: ClassVar[dict[str, dict[str, Any]]] = {}
    """Tool name to {"description": str, "parameters": ...}; the parameters are a JSON schema, or for short
    {argument name: JSON type name, or that argument's schema}, all of them required."""

    tasks: list[tuple[str, Callable[[dict[str, Any]], bool]]]
    t: int
    """Turns taken; executed calls do not count."""
    _results: list[str]
    """Results of the last turn's calls."""
    _tools: dict[str, dict[str, Any]] | None = None
    _user_messages: list[str] | None = None
    _message_criteria: list[Callable[[dict[str, Any]], bool]] | None = None

    def __init__(self, max_turns: int | None = None, **options: Any) -> None:
        if max_turns is not None:
            self.max_turns = max_turns
        self._begin()

    def __init_subclass__(cls, **options: Any) -> None:
        """A subclass's own `reset` starts from a clean base, without having to say so."""
        super().__init_subclass__(**options)
        own = cls.__dict__.get("reset")
        if own is not None:

            def reset(self: Any, seed: int | None = None, **more: Any) -> Any:
                self._begin()
                return own(self, seed=seed, **more)

            cls.reset = reset  # type: ignore[method-assign]

    def _begin(self) -> None:
        self._state: dict[str, Any] = {}
        self._current_msg = 0
        self.tasks, self._results, self.t = [], [], 0

    @property
    def state(self) -> dict[str, Any]:
        """What the tools read and write."""
        return self._state

    @state.setter
    def state(self, value: dict[str, Any]) -> None:
        self._state = value

    @property
    def current(self) -> int:
        """Number of instructions that are done."""
        return self._current_msg

    @current.setter
    def current(self, value: int) -> None:
        self._current_msg = value

    # --- what a program writes -------------------------------------------------------------------------

    def setup(self, rng: random.Random) -> None:
        """Fill `self.state` (a dict) and `self.tasks`, a list of (instruction, predicate on the state)."""
        raise NotImplementedError

    def call(self, tool: str, /, **arguments: Any) -> str:
        """The action text of one tool call; `solution()` is a list of these and `self.answer`."""
        return "<tool_call>" + json.dumps({"name": tool, "arguments": arguments}) + "</tool_call>"

    def tool_decline(self, reason: str) -> str:
        """A ready-made tool for requests that no other tool can serve: list `decline` in `tools`."""
        self._state["declined"] = reason
        return "declined"

    # --- what it gets ----------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode; the first observation is the first instruction."""
        self._begin()
        self.setup(random.Random(seed))
        return self.instructions()[0], {"tools": self.schemas()}

    def schemas(self) -> list[dict[str, Any]]:
        """The tools in the OpenAI function format."""
        out = []
        for name, tool in self._table().items():
            parameters = schema_of(tool.get("parameters", {}))
            function = {"name": name, "description": tool.get("description", ""), "parameters": parameters}
            out.append({"type": "function", "function": function})
        return out

    get_tools = schemas

    def instructions(self) -> list[str]:
        """What the user asks for, in order; the Agent sees them one at a time."""
        return [t for t, _ in self.tasks] if self._user_messages is None else self._user_messages

    def criteria(self) -> list[bool | None]:
        """The value of each instruction's predicate now; None where it raises."""
        return [_holds(test, self._state) for test in self._tests()]

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Run every call of one turn, or check the answer. An answer takes precedence over calls."""
        self.t += 1
        self._results = []
        out_of_turns = self.t >= self.max_turns
        turn = read_turn(action)
        if turn.answer is not None:
            done = turn.answer.casefold() == "done" and self.current >= len(self.instructions())
            return self._judged(done), float(done), done, out_of_turns and not done, {}
        self._results = [self.run(c) for c in turn.calls]
        text = "\n".join(self._results) if turn.calls else "call a tool or answer done"
        return text, 0.0, False, out_of_turns, {}

    def _judged(self, done: bool) -> str:
        if done:
            return "all done"
        pending = self.instructions()[self.current :]
        return "not yet: " + pending[0] if pending else "not yet: answer done"

    def run(self, text: str) -> str:
        """Execute one call given as JSON text; every mistake becomes a readable message."""
        try:
            call = json.loads(text)
            name, arguments = call["name"], call["arguments"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return "error: a call needs name and arguments"
        return str(self.execute_tool(name, arguments)["output"])

    def execute_tool(self, name: Any, arguments: Any) -> dict[str, Any]:
        """Run one tool: {"output": text, "returncode": 0, or 1 after an error}."""
        table = self._table()
        if not isinstance(name, str) or name not in table:
            return {"output": "error: no such tool", "returncode": 1}
        wrong = argument_error(schema_of(table[name].get("parameters", {})), arguments)
        if wrong is not None:
            return {"output": wrong, "returncode": 1}
        before = self._current_msg
        try:
            output, code = str(getattr(self, "tool_" + name)(**arguments)), 0
        except Exception:  # whatever a tool raises is an answer to the Agent, not a fault of the episode
            output, code = "error: bad argument", 1
        # A program of the long style may have moved on by itself already.
        return {
            "output": output + (self.advance() if before == self._current_msg else ""),
            "returncode": code,
        }

    def advance(self) -> str:
        """Move to the next instruction when the current predicate holds; its text joins the tool's result."""
        tests = self._tests()
        if self.current < len(tests) and _holds(tests[self.current], self._state):
            self.current += 1
            rest = self.instructions()[self.current :]
            return "\nnext: " + rest[0] if rest else "\nanswer done"
        return ""

    def _table(self) -> dict[str, dict[str, Any]]:
        return self.tools if self._tools is None else self._tools

    def _tests(self) -> list[Callable[[dict[str, Any]], bool]]:
        return [test for _, test in self.tasks] if self._message_criteria is None else self._message_criteria


def _holds(test: Callable[[dict[str, Any]], bool], state: dict[str, Any]) -> bool | None:
    try:
        return bool(test(state))
    except Exception:  # a predicate that cannot look yet does not hold yet
        return None
