"""The tokenizer: lossless on everything, short on programs."""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spade.embedded.mechanics import registry, sample_program, tool_registry
from spade.embedded.tokenizer import SPECIAL


def ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def programs(n: int, *, tools: bool = False) -> list[str]:
    rng = random.Random(11)
    return [sample_program(rng, tools=tools).code for _ in range(n)]


def test_round_trip_of_programs_and_documents(tokenizer: Any, documents: list[str]) -> None:
    texts = [*programs(200), *programs(60, tools=True), *documents]
    assert [t for t in texts if tokenizer.decode(ids(tokenizer, t)) != t] == []


@pytest.mark.parametrize(
    "text",
    [
        "naïve café, Größe, 北京, 🂡🧪, العربية, \u200b\ufeff|",
        "\\boxed{\\frac{1}{2}} {{nested}}",
        "\ttab\r\nline\n\n\n    four\n  two \x00\x1f end",
        " " * 40 + "x" * 300 + "0" * 50,
    ],
)
def test_round_trip_of_odd_texts(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(ids(tokenizer, text)) == text


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_round_trip_of_arbitrary_unicode(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(ids(tokenizer, text)) == text


def test_programs_are_short(tokenizer: Any) -> None:
    games = [len(ids(tokenizer, code)) for code in programs(400)]
    assert statistics.median(games) <= 80
    assert max(games) <= 130
    tools = [len(ids(tokenizer, code)) for code in programs(100, tools=True)]
    assert statistics.median(tools) <= 90
    assert max(tools) <= 130


def lengths_of_numbers(tokenizer: Any) -> dict[int, int]:
    return {n: len(ids(tokenizer, str(n))) for n in range(100)}


def test_small_numbers_are_one_token(tokenizer: Any) -> None:
    """Most difficulty parameters lie here; no number ever needs more than its digits."""
    lengths = lengths_of_numbers(tokenizer)
    assert [n for n in range(21) if lengths[n] != 1] == []
    assert max(lengths.values()) <= 2


def test_every_number_below_a_hundred_is_one_token(tokenizer: Any) -> None:
    assert [n for n, length in lengths_of_numbers(tokenizer).items() if length != 1] == []


def test_a_number_is_never_merged_with_its_neighbours(tokenizer: Any) -> None:
    """`max_turns = 4` and `max_turns = 5` differ in one token: the parameter is a decision of its own."""
    one, other = ids(tokenizer, "    max_turns = 4\n"), ids(tokenizer, "    max_turns = 5\n")
    assert len(one) == len(other)
    assert sum(a != b for a, b in zip(one, other, strict=True)) == 1


def test_every_byte_has_a_token_so_nothing_is_unknown(tokenizer: Any) -> None:
    from tokenizers import pre_tokenizers

    vocabulary = tokenizer.get_vocab()
    assert set(pre_tokenizers.ByteLevel.alphabet()) <= set(vocabulary)
    assert tokenizer.unk_token is None
    assert [vocabulary[s] for s in SPECIAL] == list(range(len(SPECIAL)))
    assert tokenizer.eos_token == "<|end|>" and tokenizer.pad_token == "<|pad|>"


def test_no_special_token_hides_in_the_corpus(documents: list[str]) -> None:
    """A document or program that spells a special token would end a training sample in its middle."""
    hints = [h for m in (*registry().values(), *tool_registry().values()) for h in m.hints]
    texts = [*documents, *programs(200), *programs(60, tools=True), *hints]
    assert [t for t in texts if any(s in t for s in SPECIAL)] == []


def test_saved_tokenizer_is_a_plain_fast_one(built: tuple[Path, list[str]]) -> None:
    names = {p.name for p in built[0].iterdir()}
    assert {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} <= names


def test_a_tool_call_is_a_token_a_value_and_one_between(tokenizer: Any) -> None:
    """Twenty marks of JSON to copy right are what a small model fails at; here they are four tokens."""
    text = '<tool_call>{"name": "take", "arguments": {"good": "milk", "packs": 12}}</tool_call>'
    parts = [tokenizer.decode([i]) for i in ids(tokenizer, text)]
    between = ['<tool_call>{"name": "', '", "arguments": {"good": "', '", "packs": ', "}}</tool_call>"]
    assert parts == [between[0], "take", between[1], "milk", between[2], "12", between[3]]
    assert len(ids(tokenizer, "<answer>done</answer>")) == 1
