"""Log-probs of sampled tokens under a Hugging Face causal model, without logits for anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spade.errors import InputError
from spade.learn.batch import PackedBatch, micro_batches
from spade.learn.learner import Temperatures
from spade.machine import hardware
from spade.types import Sample

LOGIT_LIMIT = 1 << 24
"""Most logits held at once; above it the head runs in slices whose logits are recomputed for backward."""


class Scorer:
    """Forward pass of `model` up to the log-prob of every sampled token.

    The hidden states of the predicting positions are gathered BEFORE the head, so that prompt and
    observation tokens never cost a row of the vocabulary. Right-padded rows of a causal model need no
    padding mask, and leaving it out keeps the fast attention path. Models whose head is not the plain output
    matrix (logit scaling, soft caps) are recognised by a probe and use their own full logits.
    """

    def __init__(self, model: Any, device: torch.device, autocast: torch.dtype | None) -> None:
        self.model = model.eval()
        self.device = device
        self.autocast = autocast
        self._plain_head = self._probe()

    def __call__(self, batch: PackedBatch, temperature_B: npt.NDArray[np.float64]) -> Tensor:
        """Float32 log-probs (N,) of the sampled tokens in row-major order, at each row's temperature."""
        return self.with_entropy(batch, temperature_B, ())[0]

    def with_entropy(
        self, batch: PackedBatch, temperature_B: npt.NDArray[np.float64], probe: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Log-probs as above, and the exact entropy in nats at the sampled tokens numbered `probe`, detached.

        The entropy is that of the whole distribution the token was drawn from, at the row's temperature.
        """
        rows_N, columns_N = np.nonzero(batch.mask_BT)
        predict_N = torch.from_numpy(rows_N * batch.ids_BT.shape[1] + columns_N - 1).to(self.device)
        targets_N = torch.from_numpy(batch.ids_BT[batch.mask_BT]).to(self.device)
        scale_N = None
        if (temperature_B != 1.0).any():
            scale_N = torch.from_numpy((1.0 / temperature_B)[rows_N].astype(np.float32)).to(self.device)
        ids_BT = torch.from_numpy(batch.ids_BT).to(self.device)
        enabled = self.autocast is not None
        with torch.autocast(self.device.type, dtype=self.autocast or torch.bfloat16, enabled=enabled):
            states = self._states(ids_BT)
            states_ND = states.reshape(-1, states.shape[-1]).index_select(0, predict_N)
            logprobs_N = self._logprobs(states_ND, targets_N, scale_N)
            return logprobs_N, self._entropy(states_ND.detach(), scale_N, probe)

    def _entropy(self, states_ND: Tensor, scale_N: Tensor | None, probe: Sequence[int]) -> Tensor:
        """Entropies of the chosen rows, in slices that hold few logits at once."""
        if not probe:
            return torch.zeros(0, device=self.device)
        chosen = torch.tensor(list(probe), dtype=torch.long, device=self.device)
        vocabulary = self.model.config.get_text_config().vocab_size
        parts = []
        with torch.no_grad():
            for rows in torch.split(chosen, max(1, LOGIT_LIMIT // vocabulary)):
                logits_NV = self._logits(states_ND[rows], None if scale_N is None else scale_N[rows])
                logprobs_NV = torch.log_softmax(logits_NV, -1)
                parts.append(-(logprobs_NV.exp() * logprobs_NV).sum(-1))
        return torch.cat(parts)

    def _states(self, ids_BT: Tensor) -> Tensor:
        """Hidden states (B, T, D), or logits (B, T, V) where the head cannot be taken apart."""
        if self._plain_head:
            hidden: Tensor = self.model.base_model(input_ids=ids_BT, use_cache=False).last_hidden_state
            return hidden
        logits: Tensor = self.model(input_ids=ids_BT, use_cache=False).logits
        return logits

    def _logprobs(self, states_ND: Tensor, targets_N: Tensor, scale_N: Tensor | None) -> Tensor:
        vocabulary = self.model.config.get_text_config().vocab_size
        slice_rows = max(1, LOGIT_LIMIT // vocabulary)
        if states_ND.shape[0] <= slice_rows or not self._plain_head:
            return self._slice(states_ND, targets_N, scale_N)
        parts = []
        for start in range(0, states_ND.shape[0], slice_rows):
            cut = slice(start, start + slice_rows)
            scale = None if scale_N is None else scale_N[cut]
            args = (states_ND[cut], targets_N[cut], scale)
            part: Tensor = torch.utils.checkpoint.checkpoint(self._slice, *args, use_reentrant=False)
            parts.append(part)
        return torch.cat(parts)

    def _logits(self, states_ND: Tensor, scale_N: Tensor | None) -> Tensor:
        """Float32 logits of a few positions, divided by the temperature."""
        logits_NV: Tensor = self.model.get_output_embeddings()(states_ND) if self._plain_head else states_ND
        logits_NV = logits_NV.float()
        return logits_NV if scale_N is None else logits_NV * scale_N[:, None]

    def _slice(self, states_ND: Tensor, targets_N: Tensor, scale_N: Tensor | None) -> Tensor:
        logits_NV = self._logits(states_ND, scale_N)
        return -torch.nn.functional.cross_entropy(logits_NV, targets_N, reduction="none")

    def _probe(self) -> bool:
        """Does base model plus output matrix give the model's own logits?"""
        ids = torch.arange(4, device=self.device)[None] % self.model.config.get_text_config().vocab_size
        head = self.model.get_output_embeddings()
        if head is None:
            return False
        with torch.no_grad():
            expected = self.model(input_ids=ids, use_cache=False).logits
            got = head(self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state)
        return got.shape == expected.shape and bool(torch.allclose(got, expected, rtol=1e-4, atol=1e-4))


def row_temperatures(batch: PackedBatch, temperature: Temperatures) -> npt.NDArray[np.float64]:
    """The temperature of every row by its role, (B,). ValueError for one that is not above 0."""
    values = [temperature[r] if isinstance(temperature, Mapping) else temperature for r in batch.roles]
    if min(values) <= 0:
        raise ValueError("training needs a sampling temperature above 0; greedy plays carry no gradient")
    return np.asarray(values, np.float64)


def score_samples(
    scorer: Scorer, samples: Sequence[Sample], temperature: Temperatures, micro_tokens: int, pad_id: int
) -> list[npt.NDArray[np.float32]]:
    """Log-probs: per sample an array over completion tokens, 0.0 where unmasked."""
    out = [np.zeros(len(s.completion_ids), np.float32) for s in samples]
    with torch.no_grad():
        for batch in micro_batches(samples, micro_tokens, pad_id):
            logprobs_N = scorer(batch, row_temperatures(batch, temperature))
            full_BT = np.zeros(batch.ids_BT.shape, np.float32)
            full_BT[batch.mask_BT] = logprobs_N.cpu().numpy()
            for row, index in enumerate(batch.rows):
                out[index] = full_BT[row, batch.starts_B[row] : batch.lengths_B[row]].copy()
    return out


def entropies_of(
    scorer: Scorer, samples: Sequence[Sample], temperature: Temperatures, micro_tokens: int, pad_id: int
) -> tuple[list[npt.NDArray[np.float32]], list[npt.NDArray[np.float32]]]:
    """Log-probs and exact entropies (nats, whole vocabulary) at the sampled tokens alone, per sample."""
    logprobs, entropies = ([np.zeros(0, np.float32) for _ in samples] for _ in range(2))
    with torch.no_grad():
        for batch in micro_batches(samples, micro_tokens, pad_id):
            every = range(int(batch.mask_BT.sum()))
            found = scorer.with_entropy(batch, row_temperatures(batch, temperature), every)
            ends = np.cumsum(batch.mask_BT.sum(-1))[:-1]
            for out, values_N in zip((logprobs, entropies), found, strict=True):
                for index, row in zip(batch.rows, np.split(values_N.cpu().numpy(), ends), strict=True):
                    out[index] = row
    return logprobs, entropies


def resolve_device(name: str) -> torch.device:
    """ "auto" takes CUDA when there is one. Raises `InputError` for a device that is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device '{name}' is unknown; use auto, cpu or cuda.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device 'cuda' was asked for but torch sees no GPU; use serving.device=cpu.")
    return device


def resolve_autocast(autocast: str, dtype: str, device: torch.device) -> torch.dtype | None:
    """The autocast type, or None for float32 throughout. See `CompactLearner` for the rules."""
    if autocast == "off" or (autocast == "auto" and dtype == "float32"):
        return None
    if autocast == "bf16" or dtype == "bfloat16" or device.type == "cuda":
        return torch.bfloat16
    flags = hardware().get("cpu_flags", ())
    return torch.bfloat16 if {"avx512_bf16", "amx_bf16"} & set(flags) else None
