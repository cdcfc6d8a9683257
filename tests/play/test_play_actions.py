"""The boxed codec: last complete box, thoughts ignored, braces matched, linear on hostile text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade.play.actions import MAX_ACTION_CHARS, BoxedCodec, RawCodec, codec_for, last_box, strip_thoughts


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


def test_hostile_texts_take_linear_time() -> None:
    started = time.process_time()
    for text in (r"\boxed{" * 15_000, "<think>" * 15_000, "</think>" * 15_000, "{" * 100_000):
        BoxedCodec().parse(text)
    BoxedCodec().parse(r"\boxed{" * 10_000 + "x" + "}" * 10_000)
    assert time.process_time() - started < 2.0


def test_long_actions_are_cut() -> None:
    assert len(BoxedCodec().parse("\\boxed{" + "x" * 300_000 + "}").content or "") == MAX_ACTION_CHARS


def test_tool_use_takes_the_visible_text() -> None:
    assert isinstance(codec_for("tool_use"), RawCodec)
    assert (
        codec_for("tool_use").parse("<think>x</think> <answer>done</answer>").wrapped
        == "<answer>done</answer>"
    )
    assert last_box("nothing") is None
