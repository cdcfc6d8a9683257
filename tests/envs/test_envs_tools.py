"""`ToolEnv`: how a turn is read, what each kind of turn is answered, both styles of writing a program."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade.config import SandboxConfig
from spade.envs.sandbox import Sandbox
from spade.envs.tools import ToolEnv, argument_error, read_turn, schema_of
from spade.envs.wire import Criteria, Op

LAMP: dict[str, Any] = {
    "set_lamp": {
        "description": "switch a lamp",
        "parameters": {"room": "string", "level": {"type": "integer", "enum": [0, 1, 2]}},
    },
    "read_lamp": {"description": "read a lamp", "parameters": {"room": "string"}},
    "decline": {"description": "refuse", "parameters": {"reason": "string"}},
    "break_it": {"description": "raises", "parameters": {}},
}


class LampEnv(ToolEnv):
    max_turns = 6
    tools = LAMP

    def setup(self, rng: random.Random) -> None:
        self.state = {"hall": 0, "attic": 0, "read": []}
        self.level = rng.choice([1, 2])
        self.tasks = [
            (f"Set the hall to {self.level}.", lambda s: s["hall"] == self.level),
            ("How bright is the attic?", lambda s: "attic" in s["read"]),
            ("Fetch me a coffee.", lambda s: "declined" in s),
        ]

    def tool_set_lamp(self, room: str, level: int) -> str:
        self.state[room] = level
        return f"{room} is {level}"

    def tool_read_lamp(self, room: str) -> str:
        self.state["read"].append(room)
        return str(self.state[room])

    def tool_break_it(self) -> str:
        raise ZeroDivisionError

    def solution(self) -> list[str]:
        calls = self.call("set_lamp", room="hall", level=self.level) + self.call("read_lamp", room="attic")
        return [calls, self.call("decline", reason="no tool"), self.answer]


def lamp(seed: int = 1) -> LampEnv:
    env = LampEnv()
    env.reset(seed)
    return env


# --- turns ---------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
TRAPS = st.sampled_from(["</tool_call>", "<answer>done</answer>", "<tool_call>", "}", '"'])


@given(st.lists(st.dictionaries(st.text(max_size=5), VALUES | TRAPS, max_size=3), max_size=3))
def test_calls_are_read_whole_whatever_their_texts_hold(arguments: list[dict[str, Any]]) -> None:
    calls = [{"name": "x", "arguments": a} for a in arguments]
    text = " and ".join(f"<tool_call>{json.dumps(c)}</tool_call>" for c in calls)
    turn = read_turn(text)
    assert [json.loads(c) for c in turn.calls] == calls and turn.answer is None
    assert read_turn(text + "<answer> done </answer>").answer == "done"


def test_broken_calls_are_calls_too() -> None:
    assert read_turn("<tool_call>not json</tool_call> <tool_call>{} </tool_call>").calls == ["not json", "{}"]
    assert read_turn("<tool_call>never closed").calls == ["never closed"]
    assert read_turn("<tool_call>" * 500 + "[" * 100_000).answer is None
    assert read_turn("hello") == ([], None)


def test_an_answer_takes_precedence_over_calls() -> None:
    env = lamp()
    text, reward, terminated, truncated, _ = env.step(env.solution()[0] + "<answer>done</answer>")
    assert (text, reward, terminated, truncated) == ("not yet: " + env.instructions()[0], 0.0, False, False)
    assert env.state["hall"] == 0


def test_several_calls_in_a_turn_run_in_order_and_reveal_the_next_instruction() -> None:
    env = lamp()
    text, reward, terminated, _, _ = env.step(env.solution()[0])
    assert text == f"hall is {env.level}\nnext: How bright is the attic?\n0\nnext: Fetch me a coffee."
    assert env._results == [text.split("\n0")[0], "0\nnext: Fetch me a coffee."]
    assert (reward, terminated, env.current) == (0.0, False, 2)
    assert env.step("<answer>done</answer>")[0] == "not yet: Fetch me a coffee."
    assert env.step(env.solution()[1])[0] == "declined\nanswer done"
    assert env.step("<answer>finished</answer>")[:3] == ("not yet: answer done", 0.0, False)
    assert env.step("<answer>Done</answer>")[:3] == ("all done", 1.0, True)


@pytest.mark.parametrize(
    ("turn", "part"),
    [
        ("hello", "call a tool or answer done"),
        ("<tool_call>zq</tool_call>", "needs name and arguments"),
        ('<tool_call>{"name": "set_lamp"}</tool_call>', "needs name and arguments"),
        ('<tool_call>{"name": "fly", "arguments": {}}</tool_call>', "no such tool"),
        ('<tool_call>{"name": ["x"], "arguments": {}}</tool_call>', "no such tool"),
        ('<tool_call>{"name": "read_lamp", "arguments": {}}</tool_call>', "arguments are room"),
        ('<tool_call>{"name": "read_lamp", "arguments": "hall"}</tool_call>', "arguments are room"),
        ('<tool_call>{"name": "read_lamp", "arguments": {"room": 3}}</tool_call>', "must be of type string"),
        (
            '<tool_call>{"name": "set_lamp", "arguments": {"room": "hall", "level": 9}}</tool_call>',
            "one of 0, 1",
        ),
        ('<tool_call>{"name": "read_lamp", "arguments": {"room": "moon"}}</tool_call>', "bad argument"),
        ('<tool_call>{"name": "break_it", "arguments": {}}</tool_call>', "bad argument"),
    ],
)
def test_mistakes_are_answered_by_text_and_cost_the_turn_alone(turn: str, part: str) -> None:
    env = lamp()
    text, reward, terminated, truncated, info = env.step(turn)
    assert part in text and (reward, terminated, truncated, info) == (0.0, False, False, {})
    assert env.t == 1 and env.current == 0


def test_the_turn_limit_counts_steps_not_calls() -> None:
    env = lamp()
    assert [env.step(env.solution()[0] * 3)[3] for _ in range(6)] == [False] * 5 + [True]
    env.reset(2)
    assert env.t == 0 and env.current == 0 and env._results == []


# --- schemas -------------------------------------------------------------------------------------------


def test_short_parameters_become_a_schema() -> None:
    assert schema_of({"n": "integer"}) == {
        "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
    }  # fmt: skip
    whole = {"type": "object", "properties": {"type": {"type": "string"}}}
    assert schema_of(whole) is whole
    assert schema_of({"type": "string"})["properties"] == {"type": {"type": "string"}}


def test_arguments_are_checked_against_types_and_enums() -> None:
    schema = schema_of({"n": "integer", "x": "number", "on": "boolean", "rows": "array"})
    good = {"n": 2, "x": 1, "on": True, "rows": []}
    assert argument_error(schema, good) is None
    assert argument_error(schema, {**good, "n": 2.0}) is None
    for wrong in ({"n": True}, {"n": 2.5}, {"x": "1"}, {"on": 1}, {"rows": {}}, {"more": 1}):
        assert argument_error(schema, {**good, **wrong}) is not None


# --- through the sandbox -------------------------------------------------------------------------------

LONG = """
class DoorEnv(ToolEnv):
    def __init__(self, max_turns=8, **kwargs):
        super().__init__(max_turns=max_turns)

    def reset(self, seed=None):
        self._state = {"open": False, "seed": seed}
        self._tools = {"open_door": {"description": "opens the door of seed %s" % seed,
                                     "parameters": {"type": "object", "properties": {}}}}
        self._user_messages = ["Open the door.", "Thanks, that is all."]
        self._message_criteria = [lambda s: s["open"], lambda s: s["nothing"]]
        self._current_msg = 0
        return self._user_messages[0], {}

    def tool_open_door(self):
        self._state["open"] = True
        return "open" + self.advance()

    def solution(self):
        return [self.call("open_door"), self.answer]
"""


async def test_the_long_style_and_the_tool_operations() -> None:
    async with await Sandbox.start(SandboxConfig(force_level="L2s")) as sandbox:
        worker = await sandbox.open(LONG)
        assert worker.info.tools == ()
        assert await worker.reset(0, 5) == "Open the door."
        (tool,) = await worker.tools(0)
        assert tool["function"]["name"] == "open_door" and "seed 5" in tool["function"]["description"]
        call = (await worker.solution(0))[0]
        state, _, results, after = await worker.batch(
            [Op.criteria(0), Op.step(0, call), Op.results(0), Op.criteria(0)]
        )
        assert state == Criteria(0, (False, None))  # the second predicate raises: that is no "true"
        assert results == ["open\nnext: Thanks, that is all."]
        assert after == Criteria(1, (True, None))
        await worker.step(0, "<answer>done</answer>")
        assert await worker.results(0) == []


async def test_other_programs_have_no_tools() -> None:
    code = (
        "class AEnv:\n    def reset(self, seed=None):\n        return 'a', {}\n    def step(self, action):\n"
    )
    async with await Sandbox.start(SandboxConfig(force_level="L2s")) as sandbox:
        worker = await sandbox.open(code + "        return 'b', 0.0, False, True, {}")
        await worker.reset(0, 1)
        assert (await worker.tools(0), await worker.results(0)) == ([], [])
        assert await worker.batch([Op.criteria(0)]) == [Criteria(0, ())]
