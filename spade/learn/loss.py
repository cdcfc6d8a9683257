"""The clipped policy loss over a flat list of sampled tokens (axis `_N`), in torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from spade.learn.batch import PackedBatch


class LossSettings(Protocol):
    """The fields read from `spade.config.LearnerConfig`."""

    @property
    def clip_low(self) -> float: ...
    @property
    def clip_high(self) -> float: ...
    @property
    def kl(self) -> float: ...
    @property
    def tis_max(self) -> float: ...


def policy_loss(
    logprobs_N: Tensor,
    sampled_N: Tensor,
    advantages_N: Tensor,
    weights_N: Tensor,
    cfg: LossSettings,
    *,
    old_N: Tensor | None = None,
    reference_N: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Weighted sum over tokens of tis * pg + kl * k3, and sums for the metrics.

        ratio = exp(logp - logp_old)
        pg    = -min( ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A )
        tis   = min( exp(logp_old - logp_sampled), tis_max )          no gradient
        k3    = exp(d) - d - 1,  d = clip(logp_reference - logp, -10, 10)

    `logprobs_N` are the learner's and carry the gradient; `sampled_N` those reported when sampling; `old_N`
    the learner's before this step (None: the present ones, so that ratio is 1 and the gradient is
    A * grad logp). `weights_N` come from `spade.learn.batch.token_weights`. A `tis_max` of 0 switches the
    importance weight off. All at the sampling temperature, all (N,).

    The metrics: sums over tokens named `ratio`, `clipped`, `tis`, `mismatch` (k3 estimate of
    KL(sampler || learner)), `kl`, `nll`, and the maximum `tis_max` of the untruncated weight.

    Source: PPO clipping (Schulman et al. 2017) with the wider upper bound of DAPO (Yu et al. 2025); truncated
    importance sampling as in method notes on sampler mismatch (Yao et al. 2025); k3 (Schulman 2020).
    """
    detached_N = logprobs_N.detach()
    old_N = detached_N if old_N is None else old_N
    ratio_N = torch.exp(logprobs_N - old_N)
    clipped_N = ratio_N.clamp(1.0 - cfg.clip_low, 1.0 + cfg.clip_high)
    pg_N = -torch.minimum(ratio_N * advantages_N, clipped_N * advantages_N)
    raw_tis_N = torch.exp(old_N - sampled_N)
    tis_N = raw_tis_N.clamp(max=cfg.tis_max) if cfg.tis_max > 0 else torch.ones_like(raw_tis_N)
    loss_N = tis_N * pg_N
    stats = _stats(detached_N, sampled_N, ratio_N.detach(), advantages_N, cfg)
    stats |= {"tis": tis_N.sum(), "tis_max": raw_tis_N.max()}
    if reference_N is not None:
        k3_N = _k3(reference_N - logprobs_N)
        loss_N = loss_N + cfg.kl * k3_N
        stats["kl"] = k3_N.detach().sum()
    return (weights_N * loss_N).sum(), stats


def _k3(difference_N: Tensor) -> Tensor:
    d_N = difference_N.clamp(-10.0, 10.0)
    return torch.exp(d_N) - d_N - 1.0


def _stats(
    logprobs_N: Tensor, sampled_N: Tensor, ratio_N: Tensor, advantages_N: Tensor, cfg: LossSettings
) -> dict[str, Tensor]:
    above_N = (advantages_N > 0) & (ratio_N > 1.0 + cfg.clip_high)
    below_N = (advantages_N < 0) & (ratio_N < 1.0 - cfg.clip_low)
    return {
        "ratio": ratio_N.sum(),
        "clipped": (above_N | below_N).sum(),
        "mismatch": _k3(logprobs_N - sampled_N).sum(),
        "nll": -logprobs_N.sum(),
    }


class StepSums:
    """Running sums of one step's statistics, turned into means at the end."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.rows = 0
        self.forward_tokens = 0
        self.tokens = 0
        self.tis_max = 0.0
        self.totals: dict[str, float] = {}
        self.by_role: dict[str, list[float]] = {}

    def add(self, batch: PackedBatch, loss: Tensor, stats: Mapping[str, Tensor], logprobs_N: Tensor) -> None:
        """Add one micro-batch: its share of the loss, what `policy_loss` returned, and its log-probs."""
        self.loss += float(loss)
        self.rows += len(batch.rows)
        self.forward_tokens += int(batch.lengths_B.sum())
        self.tokens += int(batch.mask_BT.sum())
        self.tis_max = max(self.tis_max, float(stats["tis_max"]))
        for name, value in stats.items():
            self.totals[name] = self.totals.get(name, 0.0) + float(value)
        rows_N = np.repeat(np.arange(len(batch.rows)), batch.mask_BT.sum(1))
        sums_B = np.bincount(rows_N, logprobs_N.double().cpu().numpy(), len(batch.rows))
        for role, total, count in zip(batch.roles, sums_B, batch.mask_BT.sum(1), strict=True):
            entry = self.by_role.setdefault(role, [0.0, 0.0])
            entry[0] -= float(total)
            entry[1] += float(count)

    def metrics(self) -> dict[str, float]:
        """Flat names to numbers; `entropy/ROLE` is the mean of -logp, an estimate of the entropy."""
        n = max(self.tokens, 1)
        named = {"ratio": "ratio_mean", "clipped": "clip_share", "tis": "tis_mean"}
        named |= {"mismatch": "mismatch_kl", "kl": "reference_kl"}
        out = {new: self.totals[old] / n for old, new in named.items() if old in self.totals}
        out |= {f"entropy/{role}": total / count for role, (total, count) in sorted(self.by_role.items())}
        return out | {
            "loss": self.loss,
            "tis_max": self.tis_max,
            "samples": float(self.rows),
            "tokens": float(self.tokens),
            "forward_tokens": float(self.forward_tokens),
        }
