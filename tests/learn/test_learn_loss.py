"""The loss against numbers worked out by hand, and attention and scoring against transformers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from spade.config import LearnerConfig
from spade.learn import scoring
from spade.learn.attention import causal_attention
from spade.learn.batch import micro_batches
from spade.learn.checkpoint import load_causal_lm
from spade.learn.loss import policy_loss
from spade.learn.scoring import Scorer, resolve_autocast
from spade.types import Sample

CPU = torch.device("cpu")


def loss_of(
    logp: list[float],
    sampled: list[float],
    advantage: list[float],
    cfg: LearnerConfig,
    old: list[float] | None = None,
    reference: list[float] | None = None,
) -> tuple[float, dict[str, float], list[float]]:
    logp_N = torch.tensor(logp, dtype=torch.float64, requires_grad=True)
    others = [None if x is None else torch.tensor(x, dtype=torch.float64) for x in (old, reference)]
    loss, stats = policy_loss(
        logp_N,
        torch.tensor(sampled, dtype=torch.float64),
        torch.tensor(advantage, dtype=torch.float64),
        torch.full((len(logp),), 1.0 / len(logp), dtype=torch.float64),
        cfg,
        old_N=others[0],
        reference_N=others[1],
    )
    torch.autograd.backward(loss)
    assert logp_N.grad is not None
    return loss.item(), {k: float(v) for k, v in stats.items()}, logp_N.grad.tolist()


def test_on_policy_gradient_is_minus_advantage() -> None:
    loss, stats, grad = loss_of([-1.0, -2.0], [-1.0, -2.0], [0.5, -2.0], LearnerConfig())
    assert loss == pytest.approx(0.75, abs=1e-9)
    assert grad == pytest.approx([-0.25, 1.0], abs=1e-9)
    assert stats["ratio"] == 2.0 and stats["clipped"] == 0.0 and stats["mismatch"] == 0.0


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "moves"),
    [
        (1.5, 1.0, -1.28, False),
        (1.27, 1.0, -1.27, True),
        (0.5, 1.0, -0.5, True),
        (0.5, -1.0, 0.8, False),
        (1.5, -1.0, 1.5, True),
        (0.81, -1.0, 0.81, True),
    ],
)
def test_asymmetric_clip(ratio: float, advantage: float, loss: float, moves: bool) -> None:
    logp = [-2.0 + math.log(ratio)]
    got, stats, grad = loss_of(logp, [-2.0], [advantage], LearnerConfig(), old=[-2.0])
    assert got == pytest.approx(loss, abs=1e-9)
    assert (grad[0] != 0.0) is moves
    assert stats["clipped"] == float(not moves)


def test_truncated_importance_weight_scales_the_gradient_up_to_its_cap() -> None:
    cfg = LearnerConfig(tis_max=2.0)
    _, stats, grad = loss_of([-1.0, -1.0], [-1.0 - math.log(1.5), -4.0], [1.0, 1.0], cfg)
    assert grad == pytest.approx([-0.75, -1.0], abs=1e-9)
    assert stats["tis"] == pytest.approx(3.5, abs=1e-9)
    assert stats["tis_max"] == pytest.approx(math.exp(3.0), abs=1e-9)


def test_k3_reference_term_is_nonnegative_and_pulls_back() -> None:
    cfg = LearnerConfig(kl=0.1)
    loss, stats, grad = loss_of([-1.0], [-1.0], [0.0], cfg, reference=[-2.0])
    assert stats["kl"] == pytest.approx(math.exp(-1.0), abs=1e-9)
    assert loss == pytest.approx(0.1 * math.exp(-1.0), abs=1e-9)
    assert grad[0] == pytest.approx(0.1 * (1 - math.exp(-1.0)), abs=1e-9)


def test_k3_is_clamped_where_the_policies_are_far_apart() -> None:
    cfg = LearnerConfig(kl=1.0)
    loss, _, grad = loss_of([-30.0], [-30.0], [0.0], cfg, reference=[-1.0])
    assert loss == pytest.approx(math.exp(10.0) - 11.0, rel=1e-9) and grad == [0.0]


def test_mismatch_estimates_the_divergence_of_sampler_and_learner() -> None:
    d = 0.3
    _, stats, _ = loss_of([-1.0 + d], [-1.0], [1.0], LearnerConfig())
    assert stats["mismatch"] == pytest.approx(math.exp(d) - d - 1, abs=1e-9)


# --- attention -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "kv"), [(1, 1), (7, 1), (64, 2), (65, 4), (150, 2)])
def test_block_attention_equals_the_plain_formula_with_gradients(tokens: int, kv: int) -> None:
    torch.manual_seed(tokens)
    q, k, v = (torch.randn(3, h, tokens, 8, dtype=torch.float64, requires_grad=True) for h in (4, kv, kv))
    probe = torch.randn(3, tokens, 4, 8, dtype=torch.float64)

    def plain() -> Tensor:
        keys, values = (x.repeat_interleave(4 // kv, 1) for x in (k, v))
        scores = q @ keys.transpose(2, 3) * 8**-0.5
        mask = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        return (scores.masked_fill(mask, -math.inf).softmax(-1) @ values).transpose(1, 2)

    got, expected = causal_attention(q, k, v, 8**-0.5), plain()
    assert torch.allclose(got, expected, atol=1e-12)
    got_grads = torch.autograd.grad((got * probe).sum(), (q, k, v))
    for a, b in zip(got_grads, torch.autograd.grad((expected * probe).sum(), (q, k, v)), strict=True):
        # Sums over blocks of keys are kept in float32 whatever the compute type.
        assert torch.allclose(a, b, atol=1e-5)


# --- scoring -------------------------------------------------------------------------------------------


def reference_logprobs(model: torch.nn.Module, sample: Sample, temperature: float) -> list[float]:
    ids = torch.tensor([sample.prompt_ids + sample.completion_ids])
    with torch.no_grad():
        full = torch.log_softmax(model(input_ids=ids).logits[0].float() / temperature, -1)
    start = len(sample.prompt_ids)
    return [
        float(full[start + i - 1, t]) if m else 0.0
        for i, (t, m) in enumerate(zip(sample.completion_ids, sample.mask, strict=True))
    ]


@pytest.mark.parametrize("limit", [1 << 24, 64 * 50])
def test_scores_equal_unpadded_full_logits_of_transformers(
    tiny: Path, make_samples: Callable[..., list[Sample]], monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(scoring, "LOGIT_LIMIT", limit)
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(tiny, attn_implementation="eager")
    scorer = Scorer(load_causal_lm(tiny, CPU), CPU, None)
    samples = make_samples(9)
    for batch in micro_batches(samples, 300, 0):
        temperature_B = np.where(np.array(batch.roles) == "agent", 1.0, 0.7)
        with torch.no_grad():
            got = scorer(batch, temperature_B).tolist()
        expected = []
        for row, index in enumerate(batch.rows):
            values = reference_logprobs(plain, samples[index], float(temperature_B[row]))
            expected += [v for v, m in zip(values, samples[index].mask, strict=True) if m]
        assert got == pytest.approx(expected, abs=1e-4)


def test_a_head_that_is_more_than_a_matrix_is_recognised(
    tiny: Path, make_samples: Callable[..., list[Sample]]
) -> None:
    model = load_causal_lm(tiny, CPU)
    forward = model.forward

    def capped(**kwargs: object) -> object:
        out = forward(**kwargs)
        out.logits = torch.tanh(out.logits / 3.0) * 3.0
        return out

    model.forward = capped
    samples = make_samples(3)
    batch = micro_batches(samples, 1000, 0)[0]
    with torch.no_grad():
        got = Scorer(model, CPU, None)(batch, np.ones(3)).tolist()
    expected = []
    for index in batch.rows:
        values = reference_logprobs(model, samples[index], 1.0)
        expected += [v for v, m in zip(values, samples[index].mask, strict=True) if m]
    assert got == pytest.approx(expected, abs=1e-4)


def test_autocast_choice() -> None:
    assert resolve_autocast("off", "bfloat16", CPU) is None
    assert resolve_autocast("auto", "float32", CPU) is None
    assert resolve_autocast("auto", "bfloat16", CPU) is torch.bfloat16
    assert resolve_autocast("bf16", "float32", CPU) is torch.bfloat16
    assert resolve_autocast("auto", "auto", torch.device("cuda")) is torch.bfloat16
