"""Packing: nothing lost, nothing mixed up, same input same batches; weights of the losses."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade.config import LearnerConfig
from spade.errors import ConfigError
from spade.learn.batch import (
    DR_GRPO_LENGTH,
    LOSSES,
    PackedBatch,
    count_episodes,
    count_groups,
    informative,
    micro_batches,
    mini_batches,
    token_weights,
)
from spade.types import Sample

Maker = Callable[..., list[Sample]]


@given(n=st.integers(1, 40), seed=st.integers(0, 1000), budget=st.integers(10, 600))
@settings(max_examples=40, deadline=None)
def test_every_sample_is_packed_once_and_can_be_read_back(
    make_samples: Maker, n: int, seed: int, budget: int
) -> None:
    samples = make_samples(n, seed)
    batches = micro_batches(samples, budget, pad_id=63)
    assert sorted(i for b in batches for i in b.rows) == list(range(n))
    for batch in batches:
        assert batch.ids_BT.size <= budget or len(batch.rows) == 1
        for row, index in enumerate(batch.rows):
            sample = samples[index]
            start, end = batch.starts_B[row], batch.lengths_B[row]
            assert tuple(batch.ids_BT[row, :start]) == sample.prompt_ids
            assert tuple(batch.ids_BT[row, start:end]) == sample.completion_ids
            assert tuple(batch.mask_BT[row, start:end]) == sample.mask
            assert not batch.mask_BT[row, :start].any() and not batch.mask_BT[row, end:].any()
            assert (batch.ids_BT[row, end:] == 63).all()
            assert np.allclose(batch.old_logprobs_BT[row, start:end], sample.logprobs)
            assert batch.advantages_B[row] == sample.advantage and batch.roles[row] == sample.role


def test_rows_are_sorted_by_length_and_batches_repeat(make_samples: Maker) -> None:
    samples = make_samples(50)
    first, second = (micro_batches(samples, 300, 0) for _ in range(2))
    assert [b.rows for b in first] == [b.rows for b in second]
    lengths = [int(n) for b in first for n in b.lengths_B]
    assert lengths == sorted(lengths)
    padded, real = sum(b.ids_BT.size for b in first), sum(lengths)
    assert padded < 1.15 * real


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mask": (1,)}, "mask entries"),
        ({"mask": (1, 2, 0)}, "other than 0 and 1"),
        ({"prompt_ids": ()}, "first token"),
        ({"logprobs": (-1.0, float("nan"), 0.0)}, "finite"),
        ({"logprobs": (-1.0, 0.5, 0.0)}, "not positive"),
        ({"logprobs": (-1.0, -1.0, -1.0)}, "not sampled"),
        ({"advantage": float("inf")}, "finite"),
    ],
)
def test_an_inconsistent_sample_is_refused_by_name(change: dict[str, object], words: str) -> None:
    good = Sample((1, 2), (3, 4, 5), (1, 1, 0), (-1.0, -2.0, 0.0), 0.5, "agent", group="g7")
    micro_batches([good], 100, 0)
    with pytest.raises(ValueError, match=words) as caught:
        micro_batches([good, replace(good, **change)], 100, 0)  # type: ignore[arg-type]
    assert "sample 1 (agent, g7)" in str(caught.value)


def test_informative_leaves_out_what_cannot_move_weights() -> None:
    good = Sample((1,), (3,), (1,), (-1.0,), 0.5, "agent")
    samples = [
        good,
        replace(good, advantage=0.0),
        replace(good, weight=0.0),
        replace(good, mask=(0,), logprobs=(0.0,)),
        good,
    ]
    assert informative(samples) == [0, 4]
    assert informative(samples, with_reference=True) == [0, 1, 4]


def test_align_spreads_values_over_the_completion(make_samples: Maker) -> None:
    samples = make_samples(6)
    values = [np.arange(len(s.completion_ids)) + 1.0 for s in samples]
    for batch in micro_batches(samples, 200, 0):
        spread_BT = batch.align(values)
        for row, index in enumerate(batch.rows):
            start, end = batch.starts_B[row], batch.lengths_B[row]
            assert (spread_BT[row, start:end] == values[index]).all()
            assert spread_BT[row].sum() == values[index].sum()
    with pytest.raises(ValueError, match="sample 0"):
        micro_batches(samples[:1], 200, 0)[0].align([[1.0]])


def weight_sums(batches: list[PackedBatch], kind: str, n_samples: int, n_tokens: int) -> float:
    parts = (token_weights(b, kind, n_samples, n_tokens) * b.mask_BT.sum(1) for b in batches)
    return float(sum(p.sum() for p in parts))


def test_episodes_and_groups_are_counted_as_such(make_samples: Maker) -> None:
    samples = [
        replace(s, episode=e) for s, e in zip(make_samples(6), ("", "", "a", "a", "b", "b"), strict=True)
    ]
    assert count_episodes(samples) == 4
    unseen = replace(samples[0], mask=(0,) * len(samples[0].mask), logprobs=(0.0,) * len(samples[0].mask))
    assert count_episodes([unseen, *samples[1:]]) == 3
    groups = [replace(s, group=g) for s, g in zip(samples, ("x", "x", "y", "y", "", ""), strict=True)]
    flat = [replace(s, advantage=0.0) if i in (0, 1, 2, 4) else s for i, s in enumerate(groups)]
    assert count_groups(groups) == (4, 0)
    assert count_groups(flat) == (4, 2)  # x and the first without a group


@given(n=st.integers(1, 30), count=st.integers(1, 8), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_mini_batches_share_out_whole_episodes(make_samples: Maker, n: int, count: int, seed: int) -> None:
    samples = [replace(s, episode=f"{s.role}{i // 4}") for i, s in enumerate(make_samples(n))]
    parts = mini_batches(samples, count, random.Random(seed))
    assert parts == mini_batches(samples, count, random.Random(seed))
    assert sorted(i for part in parts for i in part) == list(range(n)) and all(parts)
    where = {i: k for k, part in enumerate(parts) for i in part}
    for role in ("agent", "designer"):
        homes: dict[str, set[int]] = {}
        for i, s in enumerate(samples):
            if s.role == role:
                homes.setdefault(s.episode, set()).add(where[i])
        assert all(len(h) == 1 for h in homes.values())
        sizes = [sum(h == {k} for h in homes.values()) for k in range(count)]
        assert max(sizes) - min(sizes) <= 1


def test_names_agree_with_the_config() -> None:
    assert [LearnerConfig(loss=name).loss for name in LOSSES] == list(LOSSES)  # type: ignore[arg-type]


def test_weights_of_the_losses(make_samples: Maker) -> None:
    samples = make_samples(12)
    tokens = sum(sum(s.mask) for s in samples)
    batches = micro_batches(samples, 300, 0)
    assert weight_sums(batches, "grpo", 12, tokens) == pytest.approx(1.0, abs=1e-9)
    assert weight_sums(batches, "dapo", 12, tokens) == pytest.approx(1.0, abs=1e-9)
    assert weight_sums(batches, "gspo", 12, tokens) == pytest.approx(1.0, abs=1e-9)
    expected = tokens / (12 * DR_GRPO_LENGTH)
    assert weight_sums(batches, "dr_grpo", 12, tokens) == pytest.approx(expected, abs=1e-9)
    assert weight_sums(batches, "reinforce", 12, tokens) == pytest.approx(expected, abs=1e-9)
    with pytest.raises(ConfigError, match="dapo"):
        token_weights(batches[0], "ppo", 12, tokens)
