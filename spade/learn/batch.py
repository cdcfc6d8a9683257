"""Neutral samples to padded micro-batches. Pure functions over arrays; axes: `_B` rows, `_T` tokens.

Rows are padded on the right. `mask_BT` marks the sampled tokens themselves; the position that predicts the
token at t is t - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spade.errors import ConfigError
from spade.types import Sample

LOSSES = ("grpo", "dapo", "dr_grpo")
"""Names `token_weights` knows."""

DR_GRPO_LENGTH = 128.0
"""Tokens that stand for one full-length answer in `dr_grpo`. Only fixes the unit of the loss."""


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """One micro-batch. `old_logprobs_BT` are those reported when sampling, 0.0 where `mask_BT` is False."""

    ids_BT: npt.NDArray[np.int64]
    mask_BT: npt.NDArray[np.bool_]
    old_logprobs_BT: npt.NDArray[np.float32]
    advantages_B: npt.NDArray[np.float64]
    weights_B: npt.NDArray[np.float64]
    roles: tuple[str, ...]
    rows: tuple[int, ...]
    """Index of each row in the list of samples that was packed."""
    lengths_B: npt.NDArray[np.int64]
    starts_B: npt.NDArray[np.int64]
    """Where the completion of each row begins."""

    def align(self, per_completion: Sequence[npt.ArrayLike]) -> npt.NDArray[np.float32]:
        """Spread one array per packed sample (one entry a completion token) over the batch: (B, T)."""
        out_BT = np.zeros(self.ids_BT.shape, np.float32)
        for row, index in enumerate(self.rows):
            values = np.asarray(per_completion[index], np.float32)
            start, end = self.starts_B[row], self.lengths_B[row]
            if values.shape != (end - start,):
                raise ValueError(f"sample {index}: {values.shape[0]} values for {end - start} tokens")
            out_BT[row, start:end] = values
        return out_BT


def informative(samples: Sequence[Sample], with_reference: bool = False) -> list[int]:
    """Indices of the samples that move the weights: advantage and weight not 0, something was sampled.

    `with_reference`: a divergence term also pulls on samples of zero advantage, so these stay. The caller
    counts the rest as dropped; they still count in the loss's denominators, so that dropping them saves time
    and changes nothing.
    """
    return [
        i
        for i, s in enumerate(samples)
        if (with_reference or s.advantage != 0.0) and s.weight != 0.0 and any(s.mask)
    ]


def check_sample(sample: Sample, index: int = 0) -> None:
    """Raise ValueError naming the sample if its token stream is not consistent.

    Completion ids, mask and log-probs have one length; the mask is 0 or 1; sampled tokens have a predecessor
    to be predicted from; log-probs are finite, <= 0 where sampled and 0.0 elsewhere; advantage and weight
    are finite.
    """
    where = f"sample {index} ({sample.role}{', ' + sample.group if sample.group else ''})"
    n = len(sample.completion_ids)
    if len(sample.mask) != n or len(sample.logprobs) != n:
        raise ValueError(
            f"{where}: {n} ids, {len(sample.mask)} mask entries, {len(sample.logprobs)} log-probs"
        )
    mask = np.asarray(sample.mask, np.int64)
    logprobs = np.asarray(sample.logprobs, np.float64)
    if not np.isin(mask, (0, 1)).all():
        raise ValueError(f"{where}: the mask has entries other than 0 and 1")
    if not sample.prompt_ids and n and mask[0]:
        raise ValueError(f"{where}: the first token of the stream cannot be a sampled one")
    if not np.isfinite(logprobs).all() or (logprobs > 1e-4).any():
        raise ValueError(f"{where}: log-probs must be finite and not positive")
    if (logprobs[mask == 0] != 0.0).any():
        raise ValueError(f"{where}: a token that was not sampled carries a log-prob")
    if not np.isfinite([sample.advantage, sample.weight]).all():
        raise ValueError(f"{where}: advantage and weight must be finite")


def micro_batches(samples: Sequence[Sample], max_tokens: int, pad_id: int) -> list[PackedBatch]:
    """Sort by length (ties by position) and cut so that rows x longest row <= `max_tokens`.

    A sample longer than the budget gets a batch of its own. Same samples, same batches. Raises ValueError on
    an inconsistent sample (see `check_sample`).
    """
    for index, sample in enumerate(samples):
        check_sample(sample, index)
    lengths = [len(s.prompt_ids) + len(s.completion_ids) for s in samples]
    order = sorted(range(len(samples)), key=lambda i: (lengths[i], i))
    cuts: list[list[int]] = []
    for i in order:
        if cuts and (len(cuts[-1]) + 1) * lengths[i] <= max_tokens:
            cuts[-1].append(i)
        else:
            cuts.append([i])
    return [_pack(samples, rows, pad_id) for rows in cuts]


def _pack(samples: Sequence[Sample], rows: list[int], pad_id: int) -> PackedBatch:
    chosen = [samples[i] for i in rows]
    starts_B = np.array([len(s.prompt_ids) for s in chosen], np.int64)
    lengths_B = starts_B + np.array([len(s.completion_ids) for s in chosen], np.int64)
    shape = (len(rows), int(lengths_B.max()))
    ids_BT = np.full(shape, pad_id, np.int64)
    mask_BT = np.zeros(shape, np.bool_)
    old_BT = np.zeros(shape, np.float32)
    for b, sample in enumerate(chosen):
        start, end = starts_B[b], lengths_B[b]
        ids_BT[b, :start] = sample.prompt_ids
        ids_BT[b, start:end] = sample.completion_ids
        mask_BT[b, start:end] = sample.mask
        old_BT[b, start:end] = sample.logprobs
    return PackedBatch(
        ids_BT=ids_BT,
        mask_BT=mask_BT,
        old_logprobs_BT=old_BT,
        advantages_B=np.array([s.advantage for s in chosen], np.float64),
        weights_B=np.array([s.weight for s in chosen], np.float64),
        roles=tuple(s.role for s in chosen),
        rows=tuple(rows),
        lengths_B=lengths_B,
        starts_B=starts_B,
    )


def token_weights(batch: PackedBatch, kind: str, n_samples: int, n_tokens: int) -> npt.NDArray[np.float64]:
    """Weight of every sampled token in the loss, shape (B,): the loss is the weighted SUM over tokens.

    With w_i the sample's weight, n_i its sampled tokens, over ALL `n_samples` samples of the step, which
    hold `n_tokens` sampled tokens (zero-advantage ones included):

    * grpo:    w_i / (n_i * n_samples)             mean over tokens, then over samples (Shao et al. 2024)
    * dapo:    w_i / n_tokens                      mean over tokens (Yu et al. 2025)
    * dr_grpo: w_i / (DR_GRPO_LENGTH * n_samples)  no division by the length (Liu et al. 2025)

    Raises `ConfigError` for an unknown kind.
    """
    counts_B = np.maximum(batch.mask_BT.sum(1), 1)
    if kind == "grpo":
        return np.asarray(batch.weights_B / (counts_B * n_samples), dtype=np.float64)
    if kind == "dapo":
        return np.asarray(batch.weights_B / n_tokens, dtype=np.float64)
    if kind == "dr_grpo":
        return np.asarray(batch.weights_B / (DR_GRPO_LENGTH * n_samples), dtype=np.float64)
    raise ConfigError(f"learner.loss '{kind}' is unknown; choose one of {', '.join(LOSSES)}.")
