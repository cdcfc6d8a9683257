"""Every loss against a slow loop over single tokens, written from the formulas; gradients, too."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spade.config import LearnerConfig
from spade.learn.batch import (
    DR_GRPO_LENGTH,
    LOSSES,
    PackedBatch,
    count_episodes,
    micro_batches,
    token_weights,
)
from spade.learn.loss import policy_loss
from spade.types import Sample

Maker = Callable[..., list[Sample]]
Table = list[list[float]]

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "reference": {"kl": 0.1},
    "dual_clip": {"dual_clip": 1.5, "clip_low": 0.1},
    "no_weight": {"tis_max": 0.0},
    "low_cap": {"tis_max": 0.7, "kl": 0.05, "gspo_clip_low": 0.05, "gspo_clip_high": 0.02},
}


def split(samples: list[Sample]) -> list[Sample]:
    """The first six samples are two episodes of three turns each."""
    return [
        replace(s, episode=f"e{i // 3}", advantage=samples[i // 3].advantage) if i < 6 else s
        for i, s in enumerate(samples)
    ]


def tables(samples: list[Sample], seed: int) -> tuple[Table, Table, Table]:
    """Log-probs of the learner, the learner before, and the reference, one a completion token."""
    rng = np.random.default_rng(seed)
    now = [[lp + rng.normal(0, 0.3) for lp in s.logprobs] for s in samples]
    old = [[lp + rng.normal(0, 0.3) for lp in row] for row in now]
    reference = [[lp + rng.normal(0, 0.5) for lp in row] for row in now]
    return now, old, reference


# --- the slow loop -------------------------------------------------------------------------------------


def slow_token(
    logp: Tensor, old: float, sampled: float, ratio: Tensor, behind: float, advantage: float, cfg: Any
) -> Tensor:
    low, high = (
        (cfg.gspo_clip_low, cfg.gspo_clip_high) if cfg.loss == "gspo" else (cfg.clip_low, cfg.clip_high)
    )
    if cfg.loss == "reinforce":
        pg = -advantage * logp
    else:
        clipped = torch.clip(ratio, 1 - low, 1 + high)
        pg = -torch.min(ratio * advantage, clipped * advantage)
        if cfg.dual_clip and advantage < 0 and pg > -cfg.dual_clip * advantage:
            pg = torch.tensor(-cfg.dual_clip * advantage, dtype=torch.float64)
    weight = min(math.exp(behind), cfg.tis_max) if cfg.tis_max else 1.0
    return weight * pg


def slow_loss(samples: list[Sample], now: list[Tensor], old: Table, reference: Table, cfg: Any) -> Tensor:
    """Loss of one step, token by token."""
    episodes: dict[Any, list[int]] = {}
    for i, s in enumerate(samples):
        episodes.setdefault(s.episode or ("alone", i), []).append(i)
    total_tokens = sum(sum(s.mask) for s in samples)
    loss = torch.zeros((), dtype=torch.float64)
    for rows in episodes.values():
        episode_tokens = sum(sum(samples[i].mask) for i in rows)
        for i in rows:
            s = samples[i]
            masked = [t for t, m in enumerate(s.mask) if m]
            mean_change = torch.stack([now[i][t] - old[i][t] for t in masked]).mean()
            mean_behind = sum(old[i][t] - s.logprobs[t] for t in masked) / len(masked)
            for t in masked:
                change = mean_change if cfg.loss == "gspo" else now[i][t] - old[i][t]
                behind = mean_behind if cfg.loss == "gspo" else old[i][t] - s.logprobs[t]
                if cfg.loss == "reinforce":
                    behind = now[i][t].item() - s.logprobs[t]
                value = slow_token(
                    now[i][t], old[i][t], s.logprobs[t], torch.exp(change), behind, s.advantage, cfg
                )
                if cfg.kl:
                    d = torch.clip(reference[i][t] - now[i][t], -10, 10)
                    value = value + cfg.kl * (torch.exp(d) - d - 1)
                share = {
                    "grpo": 1 / episode_tokens / len(episodes),
                    "gspo": 1 / episode_tokens / len(episodes),
                    "dapo": 1 / total_tokens,
                    "dr_grpo": 1 / DR_GRPO_LENGTH / len(episodes),
                    "reinforce": 1 / DR_GRPO_LENGTH / len(episodes),
                }[cfg.loss]
                loss = loss + s.weight * share * value
    return loss


# --- the real code -------------------------------------------------------------------------------------


def flat(batch: PackedBatch, rows: list[Tensor]) -> Tensor:
    """Values of the sampled tokens of a batch, in its order, still attached to `rows`."""
    parts = []
    for row, index in enumerate(batch.rows):
        mask = torch.from_numpy(batch.mask_BT[row, batch.starts_B[row] : batch.lengths_B[row]])
        parts.append(rows[index][mask])
    return torch.cat(parts)


def packed_loss(
    samples: list[Sample], now: list[Tensor], old: Table, reference: Table, cfg: Any, budget: int
) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    n_tokens = sum(sum(s.mask) for s in samples)
    fixed = [[torch.tensor(r, dtype=torch.float64) for r in table] for table in (old, reference)]
    sampled = [torch.tensor(s.logprobs, dtype=torch.float64) for s in samples]
    for batch in micro_batches(samples, budget, 0):
        counts = torch.from_numpy(batch.mask_BT.sum(1))
        weights_B = torch.from_numpy(token_weights(batch, cfg.loss, count_episodes(samples), n_tokens))
        loss, _ = policy_loss(
            flat(batch, now),
            flat(batch, sampled),
            torch.from_numpy(batch.advantages_B).repeat_interleave(counts),
            weights_B.repeat_interleave(counts),
            cfg,
            old_N=flat(batch, fixed[0]),
            reference_N=flat(batch, fixed[1]) if cfg.kl else None,
            rows_N=torch.arange(len(counts)).repeat_interleave(counts),
        )
        total = total + loss
    return total


def value_and_gradient(
    function: Callable[[list[Tensor]], Tensor], now: Table
) -> tuple[float, list[list[float]]]:
    leaves = [torch.tensor(r, dtype=torch.float64, requires_grad=True) for r in now]
    loss = function(leaves)
    torch.autograd.backward(loss)
    return loss.item(), [t.grad.tolist() if t.grad is not None else [0.0] * len(t) for t in leaves]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("setting", SETTINGS)
def test_loss_and_gradient_equal_the_slow_loop(make_samples: Maker, name: str, setting: str) -> None:
    cfg = LearnerConfig(loss=name, **SETTINGS[setting])  # type: ignore[arg-type]
    samples = [replace(s, weight=0.5 if i == 7 else 1.0) for i, s in enumerate(split(make_samples(9)))]
    now, old, reference = tables(samples, 1)
    slow, slow_gradient = value_and_gradient(lambda t: slow_loss(samples, t, old, reference, cfg), now)
    got, gradient = value_and_gradient(lambda t: packed_loss(samples, t, old, reference, cfg, 300), now)
    assert got == pytest.approx(slow, abs=1e-6, rel=1e-6)
    for mine, theirs in zip(gradient, slow_gradient, strict=True):
        assert mine == pytest.approx(theirs, abs=1e-6)
    assert max(abs(g) for row in gradient for g in row) > 1e-3


@given(
    seed=st.integers(0, 1000), name=st.sampled_from(LOSSES), order=st.permutations(range(8)), kl=st.booleans()
)
@settings(max_examples=30, deadline=None)
def test_packing_and_order_change_nothing(
    make_samples: Maker, seed: int, name: str, order: list[int], kl: bool
) -> None:
    cfg = LearnerConfig(loss=name, kl=0.1 * kl)  # type: ignore[arg-type]
    samples = split(make_samples(8, seed))
    now, old, reference = tables(samples, seed)

    def run(rows: list[int], budget: int) -> tuple[float, list[list[float]]]:
        parts = [[table[i] for i in rows] for table in (now, old, reference)]
        chosen = [samples[i] for i in rows]
        loss, grads = value_and_gradient(
            lambda t: packed_loss(chosen, t, parts[1], parts[2], cfg, budget), parts[0]
        )
        return loss, [grads[rows.index(i)] for i in range(8)]

    straight, one_by_one, shuffled = run(list(range(8)), 100_000), run(list(range(8)), 1), run(order, 250)
    for other in (one_by_one, shuffled):
        assert other[0] == pytest.approx(straight[0], abs=1e-9)
        for a, b in zip(other[1], straight[1], strict=True):
            assert a == pytest.approx(b, abs=1e-12)


@pytest.mark.parametrize("name", ["grpo", "gspo"])
def test_an_episode_of_many_turns_counts_once(make_samples: Maker, name: str) -> None:
    """Whole, or cut into one sample for each turn: the same weight for each token of an episode."""
    samples = make_samples(4)
    samples[0] = replace(samples[0], mask=(1,) * len(samples[0].completion_ids))
    samples[0] = replace(samples[0], logprobs=(-3.0,) * len(samples[0].completion_ids))
    first, cut = samples[0], 9
    head = replace(
        first,
        completion_ids=first.completion_ids[:cut],
        mask=first.mask[:cut],
        logprobs=first.logprobs[:cut],
        episode="x",
    )
    tail = replace(
        first,
        prompt_ids=(1, 2, 3),
        completion_ids=first.completion_ids[cut:],
        mask=first.mask[cut:],
        logprobs=first.logprobs[cut:],
        episode="x",
    )
    whole, parts = samples, [head, tail, *samples[1:]]
    assert count_episodes(whole) == count_episodes(parts) == 4
    share = []
    for rows in (whole, parts):
        tokens = sum(sum(s.mask) for s in rows)
        sums: dict[str, float] = {}
        for batch in micro_batches(rows, 200, 0):
            weights_B = token_weights(batch, name, count_episodes(rows), tokens) * batch.mask_BT.sum(1)
            for row, index in enumerate(batch.rows):
                key = "first" if rows[index].advantage == first.advantage else "others"
                sums[key] = sums.get(key, 0.0) + float(weights_B[row])
        share.append(sums)
    assert share[0] == pytest.approx(share[1], abs=1e-12)
    assert share[0]["first"] == pytest.approx(0.25, abs=1e-12)


def test_sequence_ratio_is_clipped_as_a_whole() -> None:
    # two sequences: mean log-ratio 0.2 (ratio 1.2214, above 1 + 0.1) and -0.05 (ratio 0.9512, inside)
    cfg = LearnerConfig(loss="gspo", gspo_clip_low=0.1, gspo_clip_high=0.1, tis_max=0.0)
    logp = torch.tensor([-1.0, -1.0, -2.0], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([-1.1, -1.3, -1.95], dtype=torch.float64)
    loss, stats = policy_loss(
        logp,
        old,
        torch.tensor([1.0, 1.0, 2.0], dtype=torch.float64),
        torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64),
        cfg,
        old_N=old,
        rows_N=torch.tensor([0, 0, 1]),
    )
    torch.autograd.backward(loss)
    assert loss.item() == pytest.approx(-(0.5 * 1.1 + 0.5 * 2 * math.exp(-0.05)), abs=1e-12)
    assert logp.grad is not None
    assert logp.grad.tolist() == pytest.approx([0.0, 0.0, -math.exp(-0.05)], abs=1e-12)
    assert float(stats["clipped"]) == 2.0


def test_dual_clip_bounds_what_a_bad_token_can_cost() -> None:
    cfg = LearnerConfig(dual_clip=3.0)
    logp = torch.tensor([math.log(0.9)], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([math.log(0.1)], dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    loss, stats = policy_loss(logp, old, -one, one, cfg, old_N=old)
    torch.autograd.backward(loss)
    assert loss.item() == pytest.approx(3.0, abs=1e-12)  # without the second clip: 9
    assert logp.grad is not None and logp.grad.item() == 0.0
    assert float(stats["clipped"]) == 1.0


def test_a_far_off_sampler_gives_finite_numbers() -> None:
    one = torch.ones(1)
    loss, stats = policy_loss(torch.zeros(1), torch.tensor([-500.0]), one, one, LearnerConfig())
    assert torch.isfinite(loss) and all(math.isfinite(float(v)) for v in stats.values())
