"""Packed rows in the form TRL's loss reads.

Rows are padded on the right only: what TRL calls the prompt is cut to the shortest one of the batch, and the
rest of the longer ones is a completion that carries no weight. So a batch is as wide as its longest row, and
positions are those the sampler saw.

Tokens weigh what `token_weights` says. TRL multiplies its loss by a mask and divides the sum by a number of
tokens over all processes; the mask may hold any weights, and the number is chosen to undo their unit:

    sum over tokens of w * c * loss / (c / processes)  =  processes * sum of w * loss

which the average over processes that follows turns into the sum over all of them. `c` keeps each row's mask
above 1, below which TRL's mean over a sequence would not be one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spade.config import LearnerConfig
from spade.learn.batch import PackedBatch, token_weights
from spade.learn.loss import LOG_LIMIT
from spade.learn.trl_args import WEIGHTS


@dataclass(frozen=True, slots=True)
class Micro:
    """One forward pass of `rows` rows, as many as in every other process: TRL compares rows over processes.

    `batch` may be a row short, or None; what is missing is filled up with rows that carry no weight.
    """

    role: str
    batch: PackedBatch | None
    rows: int
    sizes: tuple[int, int]
    """Episodes and sampled tokens the loss of the role divides by."""
    old: Sequence[npt.ArrayLike] | None = None
    reference: Sequence[npt.ArrayLike] | None = None
    """Given log-probs of the samples `batch.rows` points to."""

    def full(self, values: Tensor) -> Tensor:
        """`values` with its first row again for every row that is missing."""
        missing = self.rows - values.shape[0]
        return torch.cat([values, values[:1].expand(missing, *values.shape[1:])]) if missing else values


def trl_inputs(micro: Micro, pad_id: int, device: torch.device) -> dict[str, Tensor]:
    """Ids and masks: `prompt_ids` (B, P), `completion_ids` (B, T) and their masks, T + P the longest row."""
    batch, start = micro.batch, 1
    if batch is None:
        ids = torch.full((micro.rows, 2), pad_id, device=device)
        real = torch.ones_like(ids)
    else:
        start = cut_of(batch)
        ids = micro.full(torch.from_numpy(batch.ids_BT).to(device))
        inside = np.arange(ids.shape[1])[None] < batch.lengths_B[:, None]
        real = micro.full(torch.from_numpy(inside).long().to(device))
    return {
        "prompt_ids": ids[:, :start],
        "prompt_mask": real[:, :start],
        "completion_ids": ids[:, start:],
        "completion_mask": real[:, start:],
    }


def cut_of(batch: PackedBatch) -> int:
    """Where TRL's completions begin: at the end of the shortest prompt, after the first token at least."""
    return max(1, int(batch.starts_B.min()))


def add_loss_terms(
    inputs: dict[str, Tensor], micro: Micro, cfg: LearnerConfig, behind: Tensor | None, processes: int
) -> dict[str, Tensor]:
    """`inputs` with mask, advantages and what the loss divides by.

    `behind` (B, T) is learner's minus sampler's log-prob, from which the truncated importance weight is made;
    None: no weight. The weight is folded into the advantages, in which each of the losses is linear.
    """
    device = inputs["completion_ids"].device
    mask = torch.zeros(inputs["completion_ids"].shape, device=device)
    unit = torch.ones((), device=device)
    if micro.batch is None:
        return {**inputs, "tool_mask": mask, "advantages": mask, "num_items_in_batch": unit}
    batch, real = micro.batch, len(micro.batch.rows)
    mask[:real] = _to(batch.mask_BT[:, cut_of(batch) :], device)
    weights_B, advantages_B = (torch.zeros(micro.rows, device=device) for _ in range(2))
    weights_B[:real] = _to(token_weights(batch, WEIGHTS.get(cfg.loss, cfg.loss), *micro.sizes), device)
    advantages_B[:real] = _to(batch.advantages_B, device)
    advantages = advantages_B[:, None].expand_as(mask)
    ratio = importance(behind, mask, cfg)
    if cfg.loss == "vespo":
        # its weight of a sequence is made of the mask and of the ratio, so both must stay what they are
        advantages = advantages * weights_B[:, None]
        inputs = {**inputs, "importance_sampling_ratio": ratio}
    elif cfg.loss == "sapo":
        # TRL takes the mean over the tokens of a row, then over rows
        advantages = advantages * ratio * (weights_B * mask.sum(1) * micro.rows * processes)[:, None]
    else:
        advantages = advantages * ratio
        mask = mask * weights_B[:, None]
        unit = (1.0 / mask[:real].sum(1)).max().clamp(min=1.0)
        mask = mask * unit
    return {**inputs, "tool_mask": mask, "advantages": advantages, "num_items_in_batch": unit}


def importance(behind: Tensor | None, mask: Tensor, cfg: LearnerConfig) -> Tensor:
    """min(exp(behind), `tis_max`), 1 where the mask is 0; in `gspo` one number a row, from the mean."""
    if behind is None or cfg.tis_max <= 0:
        return torch.ones_like(mask)
    behind = behind * mask
    if cfg.loss == "gspo":
        behind = (behind.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1.0)) * mask
    return torch.exp(behind.clamp(max=LOG_LIMIT)).clamp(max=cfg.tis_max)


def aligned(micro: Micro, values: Sequence[npt.ArrayLike], device: torch.device) -> Tensor:
    """Numbers of completion tokens, spread over TRL's completions: (B, T)."""
    assert micro.batch is not None
    return micro.full(_to(micro.batch.align(values)[:, cut_of(micro.batch) :], device))


def sampled(micro: Micro, device: torch.device) -> Tensor:
    """The sampler's log-probs over TRL's completions: (B, T)."""
    assert micro.batch is not None
    return micro.full(_to(micro.batch.old_logprobs_BT[:, cut_of(micro.batch) :], device))


def _to(values: npt.NDArray[Any], device: torch.device) -> Tensor:
    return torch.from_numpy(values.astype(np.float32)).to(device)
