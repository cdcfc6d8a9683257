"""Tool calls in every form that models write; decoys; what a program gets to read; hostile texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade.envs.tools import read_turn
from spade.play.actions import MAX_ACTION_CHARS, codec_for
from spade.play.toolcalls import MAX_CALLS, Broken, ToolCodec, call_text, opening, read_reply
from spade.types import ToolCall

SET = '{"name": "set", "arguments": {"good": "milk", "n": 4}}'
MILK = ToolCall("set", {"good": "milk", "n": 4})
GET = ToolCall("get", {})
SCHEMAS = [
    {
        "type": "function",
        "function": {
            "name": "set",
            "parameters": {
                "type": "object",
                "properties": {"good": {"type": "string"}, "n": {"type": "integer"}},
            },
        },
    }
]


def tagged(*bodies: str) -> str:
    return "\n".join(f"<tool_call>\n{b}\n</tool_call>" for b in bodies)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (tagged(SET), (MILK,)),
        (f"I will.\n{tagged(SET)} Done.", (MILK,)),
        (tagged(SET, '{"name": "get", "arguments": {}}'), (MILK, GET)),
        (f"<tool_call>{SET}</tool_call><tool_call>{SET}</tool_call>", (MILK, MILK)),
        (tagged('{"name": "get"}'), (GET,)),
        (tagged('{"name": "set", "parameters": {"good": "milk", "n": 4}}'), (MILK,)),
        (tagged('{"name": "set", "arguments": "{\\"good\\": \\"milk\\", \\"n\\": 4}"}'), (MILK,)),
        (tagged('{"name": "get", "arguments": ""}'), (GET,)),
        (tagged(f"[{SET}, {SET}]"), (MILK, MILK)),
        (tagged('{"type": "function", "function": ' + SET + "}"), (MILK,)),
        (tagged('{"name": "f", "arguments": {"a": {"b": [1, {"c": "}</tool_call>{"}]}}}'),
         (ToolCall("f", {"a": {"b": [1, {"c": "}</tool_call>{"}]}}),)),
        (tagged('{"name": "f", "arguments": {"t": "<answer>done</answer>"}}'),
         (ToolCall("f", {"t": "<answer>done</answer>"}),)),
    ],
)  # fmt: skip
def test_json_calls(text: str, calls: tuple[ToolCall, ...]) -> None:
    assert read_reply(text).calls == calls and read_reply(text).answer is None


def xml(name: str, **values: str) -> str:
    rows = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
    return f"<tool_call>\n<function={name}>\n{rows}</function>\n</tool_call>"


def test_xml_calls_take_their_types_from_the_schema() -> None:
    assert read_reply(xml("set", good="milk", n="4"), SCHEMAS).calls == (MILK,)
    assert read_reply(xml("set", good="7", n="4"), SCHEMAS).calls == (ToolCall("set", {"good": "7", "n": 4}),)
    free = read_reply(xml("f", a="7", b="true", c='{"d": [1]}', e="two\nlines", g='"q"', h="1e999")).calls
    assert free == (
        ToolCall("f", {"a": 7, "b": True, "c": {"d": [1]}, "e": "two\nlines", "g": '"q"', "h": "1e999"}),
    ) or isinstance(free[0], Broken)
    both = read_reply(xml("get") + tagged(SET) + xml("set", good="milk", n="4"), SCHEMAS).calls
    assert both == (GET, MILK, MILK)
    inside = "<tool_call><function=get></function><function=get></function></tool_call>"
    assert read_reply(inside).calls == (GET, GET)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "set", "parameters": {"good": "milk", "n": 4}}',
        '  {"name": "set", "arguments": {"good": "milk", "n": 4}}\n',
        '<|python_tag|>{"name": "set", "parameters": {"good": "milk", "n": 4}}',
        'I call it: <|python_tag|>{"name": "set", "parameters": {"good": "milk", "n": 4}}',
        '```json\n{"name": "set", "parameters": {"good": "milk", "n": 4}}\n```',
    ],
)
def test_bare_calls_of_a_whole_reply(text: str) -> None:
    assert read_reply(text).calls == (MILK,)


def test_several_bare_calls() -> None:
    text = '{"name": "set", "parameters": {"good": "milk", "n": 4}}'
    for between in ("; ", "\n", ", ", ""):
        assert read_reply(text + between + text).calls == (MILK, MILK)
    assert read_reply(f"[{text}, {text}]").calls == (MILK, MILK)


@pytest.mark.parametrize(
    "text",
    [
        "I would call set with milk.",
        f"The call is {SET} I think.",
        f"{SET} and so on",
        '{"good": "milk"}',
        '{"name": "milk"}',
        "[]",
        "4",
        "",
        "</tool_call>",
    ],
)
def test_prose_and_other_json_are_no_calls(text: str) -> None:
    assert read_reply(text).calls == ()
    action = ToolCodec().parse(text)
    assert action.malformed and action.wrapped == text.strip() and action.content is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{'name': 'set'}", "not JSON"),
        ('{"name": "set", "arguments": {', "not JSON"),
        ('{"name": "set", "arguments": {}} trailing', "after the JSON value"),
        ('{"arguments": {}}', "no name"),
        ('{"name": 4, "arguments": {}}', "no name"),
        ('{"name": "set", "arguments": [1]}', "not a JSON object"),
        ('{"name": "set", "arguments": "no"}', "not JSON"),
        ('{"name": "set", "arguments": {"n": NaN}}', "not JSON"),
        ('{"name": "set", "arguments": {"n": 1e999}}', "out of range"),
        ("[]", "JSON object"),
        ("set(4)", "not JSON"),
        ("<function=set><parameter=n>4</function>", "</parameter> is missing"),
        ("<function=set><parameter=n>4</parameter>", "</function> is missing"),
        ("<function=set></function> more", "outside the function"),
        ("", "not JSON"),
    ],
)
def test_broken_calls_say_why_and_reach_the_program_as_errors(body: str, reason: str) -> None:
    (call,) = read_reply(tagged(body)).calls
    assert isinstance(call, Broken) and reason in call.reason
    action = ToolCodec().parse(tagged(body))
    assert action.malformed and reason in action.problem
    turn = read_turn(action.wrapped)
    assert len(turn.calls) == 1 and turn.answer is None
    assert isinstance(json.loads(turn.calls[0]), str)  # no object: the program says what a call needs


def test_a_broken_call_keeps_its_place_among_good_ones() -> None:
    action = ToolCodec().parse(tagged(SET, "{oops", SET))
    assert action.calls == (MILK, MILK) and not action.malformed
    texts = read_turn(action.wrapped).calls
    assert [json.loads(t) for t in texts] == [json.loads(SET), "{oops\n", json.loads(SET)]


def test_an_unclosed_call_is_broken_and_hides_nothing() -> None:
    (call,) = read_reply(f"<tool_call>{SET}").calls
    assert isinstance(call, Broken) and "missing" in call.reason
    again = read_reply(f"<tool_call>{{oops {tagged(SET)}").calls
    assert isinstance(again[0], Broken) and again[1:] == (MILK,)
    assert read_reply(f"<tool_call>{SET} <answer>done</answer>").answer == "done"


@pytest.mark.parametrize(
    "text",
    [
        "<answer>done</answer>",
        f"{tagged(SET)}\n<answer> done </answer>",
        f"<answer>done</answer>{tagged(SET)}",
        f"well, <answer>done</answer> then <answer>other</answer> {tagged('{oops')}",
    ],
)
def test_an_answer_outranks_every_call(text: str) -> None:
    action = ToolCodec().parse(text)
    assert (action.content, action.wrapped, action.calls) == ("done", "<answer>done</answer>", ())
    assert read_turn(action.wrapped).answer == "done"


@pytest.mark.parametrize(
    "decoy", [tagged(SET), "<answer>done</answer>", "<tool_call>", '{"name": "x", "parameters": {}}']
)
def test_decoys_in_thoughts_are_ignored(decoy: str) -> None:
    codec = ToolCodec()
    get = tagged('{"name": "get", "arguments": {}}')
    assert codec.parse(f"<think>maybe {decoy}</think>{get}").calls == (GET,)
    assert codec.parse(f"maybe {decoy}</think>{get}").calls == (GET,)
    assert codec.parse(f"{get}<think>or {decoy}").calls == (GET,)
    assert codec.parse(f"<think>never ends {decoy}").wrapped == ""
    assert codec.parse(f"<think>{decoy}</think>").malformed


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=4,
)
ARGUMENTS = st.dictionaries(st.text(max_size=6), VALUES, max_size=3)
CALL = st.builds(ToolCall, st.text(min_size=1, max_size=8), ARGUMENTS)
MARKUP = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<answer>", "</answer>", "<think>", "</think>", "{", "}", '"', "\\",
     "a", " ", "<function=f>", "</function>", "<parameter=a>", "</parameter>", "<|python_tag|>", "\n",
     '{"name": "f"']
)  # fmt: skip
MESSY = st.lists(MARKUP | st.text(max_size=4), max_size=25).map("".join)


@settings(max_examples=40)
@given(st.lists(CALL, min_size=1, max_size=4))
def test_what_is_written_is_read_on_both_sides(calls: list[ToolCall]) -> None:
    text = "\n".join(map(call_text, calls))
    action = ToolCodec().parse(text)
    assert list(action.calls) == calls and action.wrapped == text
    rows = [json.loads(t) for t in read_turn(text).calls]
    assert [ToolCall(r["name"], r["arguments"]) for r in rows] == calls


@settings(max_examples=40)
@given(CALL, MESSY.filter(lambda t: "</think>" not in t))
def test_arguments_with_any_markup_survive(call: ToolCall, text: str) -> None:
    nested = ToolCall(call.name, {**call.arguments, "t": text, "l": [{"deep": text}]})
    raw = f"<tool_call>{json.dumps({'name': nested.name, 'arguments': nested.arguments})}</tool_call>"
    if "<think>" not in raw:
        assert ToolCodec().parse(raw).calls == (nested,)
    assert ToolCodec().parse(call_text(nested)).calls == (nested,)


@given(MESSY)
def test_any_text_is_read_the_same_way_by_the_program(text: str) -> None:
    """Never raises; the program sees as many calls as were read, and an answer exactly when there is one."""
    action = ToolCodec().parse(text)
    reading = read_reply(action.wrapped)
    turn = read_turn(action.wrapped)
    if action.content is not None:
        assert len(turn.calls) == len(reading.calls)
        assert [c for c in reading.calls if isinstance(c, ToolCall)] == list(action.calls)
        assert (turn.answer is None) == (reading.answer is None)
    assert action.malformed == (not action.calls and turn.answer is None and reading.answer is None)


@given(MESSY, MESSY)
def test_thoughts_never_change_the_action(thought: str, text: str) -> None:
    thought, text = (t.replace("<think>", "").replace("</think>", "") for t in (thought, text))
    codec = ToolCodec()
    assert codec.parse(f"<think>{thought}</think>{text}") == codec.parse(text)


HOSTILE = (
    "<tool_call>", "<tool_call>{", '<tool_call>{"name": "', "<tool_call><function=f>", "</tool_call>",
    "<tool_call><function=f><parameter=a>", "<answer>", "[", "{", '{"name": "f", "arguments": {}}',
    "<tool_call>[", "<function=f>", "<tool_call>{}</tool_call>",
)  # fmt: skip


def test_hostile_texts_are_read_in_passing() -> None:
    """Long texts made to be scanned again and again: an algorithm that is not linear would hang here."""
    codec = ToolCodec()
    for piece in HOSTILE:
        for tail in ("", "</tool_call>", "</parameter></function></tool_call>"):
            action = codec.parse(piece * (90_000 // len(piece)) + tail)
            assert len(action.calls) <= MAX_CALLS and len(action.wrapped) <= MAX_ACTION_CHARS


def test_the_opening_is_the_instruction_and_the_hint_comes_last() -> None:
    assert opening("Set milk to 4.", None).content == "Set milk to 4."
    hinted = opening("Set milk to 4.", "look first")
    assert (hinted.role, hinted.content) == ("user", "Set milk to 4.\n\nHINT: look first")


def test_codecs_have_names() -> None:
    from spade.errors import ConfigError

    assert isinstance(codec_for("multi_turn", "tool_calls"), ToolCodec)
    assert codec_for("tool_use").wrap(" x ") == "x"
    with pytest.raises(ConfigError, match="unknown codec 'tool_call'"):
        codec_for("tool_use", "tool_call")


def test_a_codec_of_ones_own(tmp_path: Any) -> None:
    file = tmp_path / "loud.py"
    file.write_text(
        "from spade.play.actions import Action\n\n\nclass Loud:\n    instruction = 'Shout.'\n\n"
        "    def parse(self, text, tools=()):\n        return Action(text, text.upper())\n\n"
        "    def wrap(self, text):\n        return text.upper()\n"
    )
    assert codec_for("multi_turn", f"{file}:Loud").parse("hey").wrapped == "HEY"
