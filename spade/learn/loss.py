"""The policy losses over a flat list of sampled tokens (axis `_N`), in torch.

Which tokens weigh how much is decided by `spade.learn.batch.token_weights`; here is what is weighted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from spade.config import LearnerConfig

LOG_LIMIT = 20.0
"""Largest logarithm of an importance weight that is looked at; far above any cap, far below overflow."""


def policy_loss(
    logprobs_N: Tensor,
    sampled_N: Tensor,
    advantages_N: Tensor,
    weights_N: Tensor,
    cfg: LearnerConfig,
    *,
    old_N: Tensor | None = None,
    reference_N: Tensor | None = None,
    rows_N: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Weighted sum over tokens of tis * pg + kl * k3, and sums for the metrics.

        grpo, dapo, dr_grpo:  ratio = exp(logp - logp_old)                          one a token
        gspo:                 ratio = exp(mean over the sequence of logp - logp_old)
        pg  = -min( ratio * A, clip(ratio, 1 - low, 1 + high) * A )
        pg  = min(pg, -dual_clip * A)  where A < 0, if dual_clip > 0
        reinforce:            pg = -A * logp                                        no ratio, no clip
        tis = min( exp(logp_old - logp_sampled), tis_max )                          no gradient
        k3  = exp(d) - d - 1,  d = clip(logp_reference - logp, -10, 10)

    `logprobs_N` are the learner's and carry the gradient; `sampled_N` those reported when sampling; `old_N`
    the learner's before this step (None: the present ones, so that ratio is 1 and the gradient is A * grad
    logp). All at the sampling temperature, all (N,). `rows_N` (N,) numbers the sequences and is only read by
    `gspo`, whose importance weight is that of the sequence, too: exp of the mean over its tokens. In
    `reinforce` the importance weight is that of the present policy, since no ratio corrects for it. A
    `tis_max` of 0 switches the importance weight off.

    The metrics: sums over tokens named `ratio`, `clipped` (the clip took the gradient away), `tis`,
    `tis_capped`, `mismatch` (k3 estimate of KL(sampler || learner)), `kl`, `nll`, and two maxima: `tis_max`
    of the untruncated weight, and `mismatch_max` of the ratio between the two probabilities of a token (the
    larger over the smaller).

    Source: PPO clipping (Schulman et al. 2017) with the wider upper bound of DAPO (Yu et al. 2025); dual clip
    (Ye et al. 2020); GSPO (Zheng et al. 2025, arXiv 2507.18071); REINFORCE (Williams 1992); truncated
    importance sampling for the mismatch of sampler and trainer (Yao et al. 2025); k3 (Schulman 2020).
    """
    detached_N = logprobs_N.detach()
    old_N = detached_N if old_N is None else old_N
    behind_N = (detached_N if cfg.loss == "reinforce" else old_N) - sampled_N
    change_N = logprobs_N - old_N
    low, high = cfg.clip_low, cfg.clip_high
    if cfg.loss == "gspo":
        assert rows_N is not None, "gspo needs to know which tokens form a sequence"
        change_N, behind_N = (_sequence_mean(x, rows_N) for x in (change_N, behind_N))
        low, high = cfg.gspo_clip_low, cfg.gspo_clip_high
    ratio_N = torch.exp(change_N)
    if cfg.loss == "reinforce":
        pg_N, clipped_N = -advantages_N * logprobs_N, torch.zeros_like(detached_N)
    else:
        pg_N, clipped_N = _clipped(ratio_N, advantages_N, low, high, cfg.dual_clip)
    weight_N = torch.exp(behind_N.clamp(max=LOG_LIMIT))
    tis_N = weight_N.clamp(max=cfg.tis_max) if cfg.tis_max > 0 else torch.ones_like(weight_N)
    loss_N = tis_N * pg_N
    stats = {
        "ratio": ratio_N.detach().sum(),
        "clipped": clipped_N.sum(),
        "tis": tis_N.sum(),
        "tis_capped": (weight_N > tis_N).sum(),
        "tis_max": weight_N.max(),
        "mismatch": _k3(old_N - sampled_N).sum(),
        "mismatch_max": torch.exp((old_N - sampled_N).abs().max().clamp(max=LOG_LIMIT)),
        "nll": -detached_N.sum(),
    }
    if reference_N is not None:
        k3_N = _k3(reference_N - logprobs_N)
        loss_N = loss_N + cfg.kl * k3_N
        stats["kl"] = k3_N.detach().sum()
    return (weights_N * loss_N).sum(), stats


def _clipped(
    ratio_N: Tensor, advantages_N: Tensor, low: float, high: float, dual: float
) -> tuple[Tensor, Tensor]:
    """The clipped objective and where it holds the gradient back."""
    pg_N = -torch.minimum(ratio_N * advantages_N, ratio_N.clamp(1.0 - low, 1.0 + high) * advantages_N)
    seen_N, negative_N = ratio_N.detach(), advantages_N < 0
    held_N = ((advantages_N > 0) & (seen_N > 1.0 + high)) | (negative_N & (seen_N < 1.0 - low))
    if dual > 0:
        pg_N = torch.where(negative_N, torch.minimum(pg_N, -dual * advantages_N), pg_N)
        held_N = held_N | (negative_N & (seen_N > dual))
    return pg_N, held_N


def _sequence_mean(values_N: Tensor, rows_N: Tensor) -> Tensor:
    """Every token gets the mean over the tokens of its row."""
    count = int(rows_N.max()) + 1
    sums = values_N.new_zeros(count).index_add(0, rows_N, values_N)
    counts = values_N.new_zeros(count).index_add(0, rows_N, torch.ones_like(values_N))
    return (sums / counts.clamp(min=1.0)).index_select(0, rows_N)


def _k3(difference_N: Tensor) -> Tensor:
    d_N = difference_N.clamp(-10.0, 10.0)
    return torch.exp(d_N) - d_N - 1.0
