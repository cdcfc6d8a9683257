"""The boxed codec: last complete box, thoughts ignored, braces matched, linear on hostile text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade.envs.contract import boxed_content
from spade.play.actions import MAX_ACTION_CHARS, BoxedCodec, codec_for, last_box, strip_thoughts
from spade.play.toolcalls import ToolCodec


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"I say \boxed{4}", "4"),
        (r"\boxed{1} no, \boxed{2}", "2"),
        (r"\boxed{a{b}c}", "a{b}c"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\boxed{x \boxed{7} y}", r"x \boxed{7} y"),
        (r"\boxed{3} and then \boxed{4", "3"),
        (r"<think>\boxed{9}</think> so \boxed{1}", "1"),
        (r"\boxed{1} <think> or \boxed{9}", "1"),
        (r"thought without a start \boxed{9}</think>\boxed{1}", "1"),
        (r"{ \boxed{5}", "5"),
        (r"\boxed{ up }", "up"),
        (r"\boxed{}", ""),
        (r"\boxed{{4}}", "4"),
        (r"\boxed{{{4}}}", "4"),
        (r"\boxed{ {4} }", "4"),
        (r"\boxed{{a},{b}}", "{a},{b}"),
        (r"\boxed{{a}{b}}", "{a}{b}"),
        (r"\boxed {5}", "5"),
        (r"\boxed{\boxed{\boxed{7}}}", "7"),
        (r"\boxedfoo{3} \boxed{2}", "2"),
        (r"\boxed{1} but \boxed{<think>9}", "1"),
        ("<think>one</think>\\boxed{1}<think>\\boxed{8}</think> ok", "1"),
    ],
)
def test_last_complete_box_outside_thoughts(text: str, content: str) -> None:
    action = BoxedCodec().parse(text)
    assert action.content == content
    assert action.wrapped == f"\\boxed{{{content}}}"


@pytest.mark.parametrize("text", ["no box here ", r"\boxed{open", "}}{{", r"<think>\boxed{1}</think> "])
def test_a_reply_without_a_box_is_passed_on_stripped(text: str) -> None:
    action = BoxedCodec().parse(text)
    assert action.content is None
    assert action.wrapped == strip_thoughts(text).strip()


@given(st.text(alphabet="ab{} \\", max_size=30).filter(lambda t: t.count("{") == t.count("}") == 0))
def test_wrap_and_parse_are_inverse(text: str) -> None:
    codec = BoxedCodec()
    assert codec.parse(codec.wrap(text)).content == text.strip()
    assert codec.wrap(codec.wrap(text)) == codec.wrap(text)


@given(st.text(max_size=200))
def test_parse_never_raises(text: str) -> None:
    assert len(BoxedCodec().parse(text).wrapped) <= MAX_ACTION_CHARS + 8


@st.composite
def balanced(draw: st.DrawFn) -> str:
    """Text with matched braces around it, and no box of its own."""
    inner = st.text(alphabet="ab 1,;", max_size=6)
    nested = st.recursive(
        inner, lambda t: st.tuples(inner, t, inner).map(lambda p: f"{p[0]}{{{p[1]}}}{p[2]}")
    )
    text = draw(nested)
    return f"x{text}y"  # never nothing but one pair of braces


@given(balanced(), st.lists(balanced(), max_size=3))
def test_the_last_of_several_boxes_counts_with_all_its_braces(last: str, before: list[str]) -> None:
    text = " and ".join(f"\\boxed{{{b}}}" for b in [*before, last])
    assert BoxedCodec().parse(f"I say {text}.").content == last
    assert BoxedCodec().parse(f"{text} \\boxed{{open {last[0]}").content == last
    assert BoxedCodec().parse(f"\\boxed{{{{{last}}}}}").content == last
    assert BoxedCodec().parse(f"\\boxed{{\\boxed{{{last}}}}}").content == last


@given(balanced(), st.text(alphabet="ab{}\\ \n", max_size=20), balanced())
def test_decoys_in_thoughts_never_count(content: str, noise: str, decoy: str) -> None:
    box, trap = f"\\boxed{{{content}}}", f"{noise}\\boxed{{{decoy}}}"
    for text in (f"<think>{trap}</think>{box}", f"{trap}</think>{box}", f"{box}<think>{trap}"):
        assert BoxedCodec().parse(text).content == content
    assert BoxedCodec().parse(f"<think>{trap} {box}").content is None
    assert BoxedCodec().parse(f"<think>{trap}").wrapped == ""


@given(st.text(alphabet="abx{}\\ ", max_size=40) | st.text(max_size=60))
def test_the_contract_reads_the_same_action(text: str) -> None:
    """Programs, validator and the Agent's side agree on what a box holds."""
    inner = boxed_content(text)
    assert last_box(text) == (None if inner is None else inner.strip())
    action = BoxedCodec().parse(text)
    if action.content is not None and "{" not in action.content and "}" not in action.content:
        assert boxed_content(action.wrapped) == action.content


def test_hostile_texts_are_read_in_passing() -> None:
    """Long texts made to be scanned again and again: an algorithm that is not linear would hang here."""
    for text in (r"\boxed{" * 15_000, "<think>" * 15_000, "</think>" * 15_000, "{" * 100_000):
        assert BoxedCodec().parse(text).content is None
    nested = r"\boxed{" * 10_000 + "x" + "}" * 10_000
    assert (BoxedCodec().parse(nested).content or "").endswith("x" + "}" * (10_000 - 4))


def test_long_actions_are_cut() -> None:
    assert len(BoxedCodec().parse("\\boxed{" + "x" * 300_000 + "}").content or "") == MAX_ACTION_CHARS


def test_tool_use_takes_the_visible_text() -> None:
    assert isinstance(codec_for("tool_use"), ToolCodec)
    assert (
        codec_for("tool_use").parse("<think>x</think> <answer>done</answer>").wrapped
        == "<answer>done</answer>"
    )
    assert last_box("nothing") is None
