"""The learner: bit-identical repeats and continuation, roles apart, dropping changes nothing, it learns."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from spade.config import LearnerConfig, ServingConfig
from spade.errors import InputError
from spade.learn.batch import DR_GRPO_LENGTH, LOSSES
from spade.learn.trainer import CompactLearner
from spade.learn.weights import publish
from spade.serving.local import LocalPolicy
from spade.serving.policy import SamplingParams
from spade.types import Sample

Maker = Callable[..., list[Sample]]
Settings = Callable[..., LearnerConfig]


def weights(learner: CompactLearner) -> dict[str, Tensor]:
    return {n: t.clone() for n, t in learner.named_weights()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def largest_change(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    return max(float((a[n] - b[n]).abs().max()) for n in a)


@pytest.mark.parametrize("autocast", ["off", "bf16"])
def test_same_samples_give_bit_identical_weights(
    tiny: Path, make_samples: Maker, cfg: Settings, autocast: str
) -> None:
    runs = []
    for _ in range(2):
        learner = CompactLearner(tiny, cfg(autocast=autocast))
        for step in range(3):
            learner.step(make_samples(16, step))
        runs.append(weights(learner))
    assert same(*runs)


@pytest.mark.parametrize("per_role", [True, False])
def test_state_dict_round_trip_continues_bit_identically(
    tiny: Path, make_samples: Maker, cfg: Settings, per_role: bool
) -> None:
    settings = cfg(optimizer_per_role=per_role, weight_decay=0.1)
    one = CompactLearner(tiny, settings)
    one.step(make_samples(16, 0))
    saved = _deep_copy(one.state_dict())
    one.step(make_samples(16, 1))
    two = CompactLearner(tiny, settings)
    two.load_state_dict(saved)
    assert two.version == 1
    two.step(make_samples(16, 1))
    assert same(weights(one), weights(two)) and one.version == two.version == 2


def _deep_copy(state: Any) -> Any:
    if isinstance(state, dict):
        return {k: _deep_copy(v) for k, v in state.items()}
    return state.clone() if isinstance(state, Tensor) else state


def test_a_state_of_another_model_is_refused(tiny: Path, cfg: Settings) -> None:
    learner = CompactLearner(tiny, cfg())
    state = _deep_copy(learner.state_dict())
    state["weights"]["model.norm.weight"] = torch.ones(3)
    with pytest.raises(InputError, match=r"model\.norm\.weight"):
        learner.load_state_dict(state)


@pytest.mark.parametrize("loss", LOSSES)
def test_dropping_zero_advantage_samples_changes_nothing(
    tiny: Path, make_samples: Maker, cfg: Settings, loss: str
) -> None:
    samples = [replace(s, advantage=0.0) if i % 3 == 0 else s for i, s in enumerate(make_samples(12))]
    nudged = [replace(s, advantage=s.advantage or 1e-30) for s in samples]
    a, b = (CompactLearner(tiny, cfg(loss=loss)) for _ in range(2))
    start = weights(a)
    got, full = a.step(samples), b.step(nudged)
    assert got["dropped"] == 4.0 and full["dropped"] == 0.0
    assert got["samples"] == 8.0 and full["samples"] == 12.0
    assert got["loss"] == pytest.approx(full["loss"], abs=1e-7)
    assert largest_change(weights(a), weights(b)) < 1e-5 < largest_change(weights(a), start)


@pytest.mark.parametrize("micro", [120, 4096])
def test_gradient_does_not_depend_on_micro_batches(
    tiny: Path, make_samples: Maker, cfg: Settings, micro: int
) -> None:
    samples = make_samples(12)
    a, b = (CompactLearner(tiny, cfg(micro_tokens=m, lr=0.0)) for m in (700, micro))
    got, expected = a.step(samples), b.step(samples)
    for key in ("loss", "grad_norm/agent", "grad_norm/designer", "entropy/agent", "mismatch_kl"):
        assert got[key] == pytest.approx(expected[key], rel=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_equals_a_plain_reference_loop(
    tiny: Path, make_samples: Maker, cfg: Settings, loss: str
) -> None:
    """Unpadded full logits of transformers, one sample at a time; samples 0 to 2 are turns of one episode."""
    from transformers import AutoModelForCausalLM

    samples = make_samples(8, roles=("agent",))
    samples = [
        replace(s, episode="e", advantage=samples[0].advantage) if i < 3 else s for i, s in enumerate(samples)
    ]
    learner = CompactLearner(tiny, cfg(loss=loss, lr=0.0))
    norm = learner.step(samples, temperature=0.8)["grad_norm/agent"]
    model = AutoModelForCausalLM.from_pretrained(tiny, attn_implementation="eager")
    tokens = [sum(s.mask) for s in samples]
    units = [sum(tokens[:3])] * 3 + tokens[3:]
    for s, unit in zip(samples, units, strict=True):
        ids = torch.tensor([s.prompt_ids + s.completion_ids])
        logp = torch.log_softmax(model(input_ids=ids).logits[0] / 0.8, -1)
        rows = torch.arange(len(s.completion_ids)) + len(s.prompt_ids) - 1
        chosen = logp[rows, torch.tensor(s.completion_ids)]
        mask = torch.tensor(s.mask, dtype=torch.float32)
        behind = (chosen.detach() - torch.tensor(s.logprobs)) * mask
        if loss == "gspo":
            behind = torch.full_like(mask, float(behind.sum() / mask.sum()))
        tis = torch.exp(behind).clamp(max=2.0)
        share = {
            "dapo": 1 / sum(tokens),
            "dr_grpo": 1 / DR_GRPO_LENGTH / 6,
            "reinforce": 1 / DR_GRPO_LENGTH / 6,
        }.get(loss, 1 / unit / 6)
        torch.autograd.backward(-(tis * chosen * mask).sum() * s.advantage * share)
    expected = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    assert norm == pytest.approx(float(expected), rel=1e-4)


def test_roles_have_their_own_optimiser_and_learning_rate(
    tiny: Path, make_samples: Maker, cfg: Settings
) -> None:
    samples = make_samples(12)
    agent_only = [s for s in samples if s.role == "agent"]
    both = CompactLearner(tiny, cfg(designer_lr_factor=0.0))
    alone = CompactLearner(tiny, cfg())
    metrics = both.step(samples)
    alone.step(agent_only)
    assert same(weights(both), weights(alone))
    assert sorted(both.state_dict()["optimizers"]) == ["agent", "designer"]
    assert metrics["grad_norm/designer"] > 0 and metrics["entropy/designer"] > 0
    shared = CompactLearner(tiny, cfg(optimizer_per_role=False))
    shared.step(samples)
    assert list(shared.state_dict()["optimizers"]) == ["shared"]


def test_the_designers_scale_does_not_shrink_the_agents_step(
    tiny: Path, make_samples: Maker, cfg: Settings
) -> None:
    samples = make_samples(12)
    loud = [replace(s, advantage=s.advantage * 1e4) if s.role == "designer" else s for s in samples]
    a, b = (CompactLearner(tiny, cfg(designer_lr_factor=0.0)) for _ in range(2))
    a.step(samples)
    b.step(loud)
    assert same(weights(a), weights(b))


def test_reinforcement_raises_the_wanted_tokens(tiny: Path, make_samples: Maker, cfg: Settings) -> None:
    learner = CompactLearner(tiny, cfg(lr=3e-3, loss="grpo"))
    samples = make_samples(8, roles=("agent",))
    samples = [replace(s, advantage=1.0 if i % 2 else -1.0) for i, s in enumerate(samples)]

    def contrast(logprobs: list[Any]) -> float:
        return float(sum(s.advantage * np.sum(lp) for s, lp in zip(samples, logprobs, strict=True)))

    before = contrast(learner.score(samples))
    for _ in range(5):
        fresh = learner.score(samples)
        samples = [replace(s, logprobs=tuple(map(float, lp))) for s, lp in zip(samples, fresh, strict=True)]
        metrics = learner.step(samples)
        assert metrics["mismatch_kl"] < 1e-9 and metrics["tis_max"] == pytest.approx(1.0, abs=1e-3)
    assert contrast(learner.score(samples)) > before + 10.0


def test_old_logprobs_make_the_clip_bind(tiny: Path, make_samples: Maker, cfg: Settings) -> None:
    learner = CompactLearner(tiny, cfg(lr=1e-2))
    samples = make_samples(8)
    old = learner.score(samples)
    first = learner.step(samples, old=old)
    for _ in range(3):
        last = learner.step(samples, old=old)
    assert first["ratio_mean"] == pytest.approx(1.0, abs=1e-5) and first["clip_share"] == 0.0
    assert last["clip_share"] > 0.0


def test_several_updates_a_step_let_the_clip_bind(tiny: Path, make_samples: Maker, cfg: Settings) -> None:
    samples = make_samples(12)
    learner = CompactLearner(tiny, cfg(lr=1e-2, epochs=2, minibatches=3))
    metrics = learner.step(samples)
    assert metrics["updates"] == learner.version == 6
    assert metrics["samples"] == 24.0 and metrics["tokens"] == 2 * sum(sum(s.mask) for s in samples)
    assert metrics["clip_share"] > 0.0 and metrics["ratio_mean"] != 1.0
    once = CompactLearner(tiny, cfg(lr=1e-2))
    assert once.step(samples)["updates"] == once.version == 1
    again = CompactLearner(tiny, cfg(lr=1e-2, epochs=2, minibatches=3))
    again.step(samples)
    assert same(weights(learner), weights(again))


def test_epochs_repeat_the_update_with_the_first_logprobs_as_old(
    tiny: Path, make_samples: Maker, cfg: Settings
) -> None:
    samples = make_samples(8)
    one = CompactLearner(tiny, cfg(lr=1e-2))
    old = one.score(samples)
    for _ in range(2):
        one.step(samples, old=old)
    two = CompactLearner(tiny, cfg(lr=1e-2, epochs=2))
    two.step(samples)
    assert largest_change(weights(one), weights(two)) < 1e-6


def test_metrics_by_role_and_of_the_batch(tiny: Path, make_samples: Maker, cfg: Settings) -> None:
    samples = [replace(s, advantage=0.0) if s.group == "g0" else s for s in make_samples(12)]
    learner = CompactLearner(tiny, cfg(entropy_tokens=10_000, tis_max=1.5))
    got = learner.step(samples)
    assert (got["groups"], got["groups_dropped"], got["episodes"], got["dropped"]) == (3.0, 1.0, 12.0, 4.0)
    for role in ("agent", "designer"):
        mine = [s for s in samples if s.role == role and s.advantage]
        assert got[f"tokens/{role}"] == sum(sum(s.mask) for s in mine)
        logprobs = [lp for s in mine for lp, m in zip(s.logprobs, s.mask, strict=True) if m]
        scores = CompactLearner(tiny, cfg()).score(mine)
        now = np.array([x for s, lp in zip(mine, scores, strict=True) for x in lp[np.array(s.mask) == 1]])
        weight = np.exp(now - np.array(logprobs))
        assert got[f"tis_mean/{role}"] == pytest.approx(np.minimum(weight, 1.5).mean(), rel=1e-3)
        assert got[f"tis_max/{role}"] == pytest.approx(weight.max(), rel=1e-3)
        assert got[f"tis_capped/{role}"] == pytest.approx((weight > 1.5).mean(), abs=0.02)
        d = now - np.array(logprobs)
        assert got[f"mismatch_kl/{role}"] == pytest.approx((np.exp(d) - d - 1).mean(), rel=1e-3)
        assert got[f"entropy/{role}"] == pytest.approx(-now.mean(), rel=1e-3)
        assert got[f"grad_norm/{role}"] > 0
    assert got["loss"] == pytest.approx(got["loss/agent"] + got["loss/designer"], abs=1e-6)
    shared = CompactLearner(tiny, cfg(optimizer_per_role=False)).step(samples)
    assert {"grad_norm/agent", "grad_norm/designer", "grad_norm/shared"} <= set(shared)


def test_exact_entropy_is_that_of_the_tempered_distribution(
    tiny: Path, make_samples: Maker, cfg: Settings
) -> None:
    from transformers import AutoModelForCausalLM

    samples = make_samples(3, roles=("agent",))
    model = AutoModelForCausalLM.from_pretrained(tiny, attn_implementation="eager")
    values = []
    for s in samples:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([s.prompt_ids + s.completion_ids])).logits[0] / 0.7
        start = len(s.prompt_ids) - 1
        values += [float(-(p := logits[start + i].softmax(-1)) @ p.log()) for i, m in enumerate(s.mask) if m]
    got = CompactLearner(tiny, cfg(entropy_tokens=10_000)).step(samples, temperature=0.7)
    assert got["token_entropy/agent"] == pytest.approx(np.mean(values), rel=1e-4)
    few = CompactLearner(tiny, cfg(entropy_tokens=8)).step(samples, temperature=0.7)
    assert few["token_entropy/agent"] == pytest.approx(np.mean(values), rel=0.2)
    assert "token_entropy" not in CompactLearner(tiny, cfg(entropy_tokens=0)).step(samples)


def test_a_sampler_that_disagrees_raises_an_alarm_once(
    tiny: Path, make_samples: Maker, cfg: Settings
) -> None:
    learner = CompactLearner(tiny, cfg(mismatch_alarm=0.01, lr=0.0))
    samples = make_samples(8)
    with pytest.warns(UserWarning, match=r"learner\.mismatch_alarm 0\.01"):
        assert learner.step(samples)["mismatch_alarm"] == 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert learner.step(samples)["mismatch_alarm"] == 1.0
        exact = [
            replace(s, logprobs=tuple(map(float, lp)))
            for s, lp in zip(samples, learner.score(samples), strict=True)
        ]
        stale = [
            replace(s, logprobs=samples[i].logprobs) if s.role == "designer" else s
            for i, s in enumerate(exact)
        ]
        assert CompactLearner(tiny, cfg(mismatch_alarm=0.01)).step(stale)["mismatch_alarm"] == 0.0


def test_reference_divergence_starts_at_zero_and_grows(
    tiny: Path, make_samples: Maker, cfg: Settings
) -> None:
    learner = CompactLearner(tiny, cfg(kl=0.01, lr=1e-2))
    samples = make_samples(8)
    first, second = learner.step(samples), learner.step(samples)
    assert first["reference_kl"] == 0.0 and second["reference_kl"] > 1e-6
    given = learner.step(samples, reference=learner.score(samples))
    assert given["reference_kl"] == pytest.approx(0.0, abs=1e-9)


def test_nothing_to_learn_leaves_weights_and_version(tiny: Path, make_samples: Maker, cfg: Settings) -> None:
    learner = CompactLearner(tiny, cfg())
    before = weights(learner)
    for samples in ([], [replace(s, advantage=0.0) for s in make_samples(4)]):
        metrics = learner.step(samples)
        assert metrics["samples"] == 0.0 and metrics["dropped"] == len(samples)
    assert same(before, weights(learner)) and learner.version == 0


def test_a_gradient_that_is_not_finite_is_left_out(tiny: Path, make_samples: Maker, cfg: Settings) -> None:
    samples = make_samples(8)
    broken = [replace(s, advantage=1e38, weight=1e38) if s.role == "designer" else s for s in samples]
    learner = CompactLearner(tiny, cfg())
    metrics = learner.step(broken)
    assert metrics["skipped_updates"] == 1.0 and learner.version == 1
    assert all(torch.isfinite(t).all() for t in weights(learner).values())
    assert math.isinf(metrics["grad_norm/designer"]) or math.isnan(metrics["grad_norm/designer"])


def test_greedy_samples_are_refused_and_roles_may_differ(
    tiny: Path, make_samples: Maker, cfg: Settings
) -> None:
    learner = CompactLearner(tiny, cfg())
    with pytest.raises(ValueError, match="above 0"):
        learner.step(make_samples(4), temperature=0.0)
    metrics = learner.step(make_samples(4), temperature={"agent": 1.0, "designer": 0.6})
    assert all(math.isfinite(v) for v in metrics.values())


class Recorder:
    """Stands in for a serving policy: keeps what it is given, as a real one may."""

    def __init__(self) -> None:
        self.kept: dict[str, Tensor] = {}
        self.version = -1

    async def load_weights(self, named: Any, version: int) -> None:
        self.kept, self.version = dict(named), version


async def test_published_weights_are_copies_with_the_version(
    tiny: Path, make_samples: Maker, cfg: Settings
) -> None:
    learner, policy = CompactLearner(tiny, cfg()), Recorder()
    learner.step(make_samples(8))
    await publish(learner, policy)  # type: ignore[arg-type]
    published = weights(learner)
    assert same(policy.kept, published) and policy.version == 1
    learner.step(make_samples(8, 1))
    assert same(policy.kept, published) and not same(published, weights(learner))


@pytest.mark.parametrize("cut", [{}, {"top_p": 0.8}, {"top_k": 5}])
async def test_the_sampler_reports_what_the_learner_scores_at_that_temperature(
    tiny: Path, cfg: Settings, cut: dict[str, Any]
) -> None:
    """Parity of the two engines; with top-p and top-k the log-probs are over the full vocabulary, too."""
    policy = LocalPolicy.from_folder(tiny, ServingConfig(device="cpu", dtype="float32"))
    prompts = [[1, 2, 3, 4], [5, 6, 7]]
    try:
        params = SamplingParams(max_tokens=12, temperature=0.7, seed=1, **cut)
        replies = await policy.generate(prompts, params, 2)
    finally:
        await policy.close()
    samples = [
        Sample(tuple(p), c.token_ids, (1,) * len(c.token_ids), c.logprobs_T, 1.0, "agent")
        for p, row in zip(prompts, replies, strict=True)
        for c in row
    ]
    learner = CompactLearner(tiny, cfg(lr=0.0))
    for sample, scores in zip(samples, learner.score(samples, temperature=0.7), strict=True):
        assert scores.tolist() == pytest.approx(list(sample.logprobs), abs=1e-4)
    assert learner.step(samples, temperature=0.7)["mismatch_kl/agent"] < 1e-8
    assert learner.step(samples, temperature=1.0)["mismatch_kl/agent"] > 1e-4
