"""The compact learner: plain torch, a Hugging Face model, full-precision master weights.

In an update, gradients of every role are accumulated at the same weights over micro-batches of equal-length
rows, clipped, and applied by that role's own AdamW. One `step` is one update, or several on parts of the
samples. It is the reference for the mathematics; same samples and same thread count give bit-identical
weights. Several processes on CPUs (`spade.learn.parallel`) share the micro-batches and add up gradients;
each holds the whole model and takes the same step.
"""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spade.config import LearnerConfig
from spade.errors import InputError
from spade.learn.batch import (
    PackedBatch,
    by_role,
    count_episodes,
    informative,
    micro_batches,
    mini_batches,
    token_weights,
)
from spade.learn.checkpoint import load_causal_lm, save_model
from spade.learn.learner import Logprobs, Temperatures
from spade.learn.loss import policy_loss
from spade.learn.mismatch import watch_mismatch
from spade.learn.optimizers import RoleOptimizers
from spade.learn.parallel import Team
from spade.learn.scoring import (
    Scorer,
    entropies_of,
    resolve_autocast,
    resolve_device,
    row_temperatures,
    score_samples,
)
from spade.learn.shards import load_weights
from spade.learn.sums import StepSums, batch_metrics
from spade.types import Sample

CPU_MICRO_TOKENS = 2048
"""Cap of `learner.micro_tokens` on a CPU: larger passes leave the cache (`benchmarks/learn.py`)."""


def pass_tokens(cfg: LearnerConfig, device: torch.device) -> int:
    """Padded tokens of one forward pass on a device."""
    limit = int(cfg.micro_tokens)
    return min(limit, CPU_MICRO_TOKENS) if device.type == "cpu" else limit


@dataclass(slots=True)
class _Work:
    """What all updates of one `step` share."""

    samples: Sequence[Sample]
    kept: frozenset[int]
    """Samples that can move a weight."""
    temperature: Temperatures
    old: Logprobs | None
    reference: Logprobs | None
    stride: int
    """Every how many sampled tokens the exact entropy is measured; 0 = never."""
    sums: StepSums = field(default_factory=StepSums)

    def arrays(self, rows: Sequence[int]) -> list[list[npt.ArrayLike] | None]:
        """Old and reference log-probs of some samples."""
        return [None if x is None else [x[i] for i in rows] for x in (self.old, self.reference)]


class CompactLearner:
    """Owns the trainable policy and its optimisers.

    `model_path` is a folder with `config.json` and safetensors weights. `dtype` only decides the compute
    type when `cfg.autocast` is "auto": "auto" uses bfloat16 where the hardware multiplies it natively,
    "float32" and "bfloat16" insist; master weights are float32 always. With `cfg.kl` > 0 a frozen copy of
    the start weights is the reference, so construct from the start model and then `load_state_dict`.

    `threads` is set for the whole process; results are reproducible for one fixed number. With a `team` of
    several processes, call `step` and `load_state_dict` in that of rank 0 only.
    Raises `InputError` for a folder that cannot be used or a device that is not there.
    """

    def __init__(
        self,
        model_path: str | Path,
        cfg: LearnerConfig,
        device: str = "auto",
        dtype: str = "auto",
        threads: int = 1,
        team: Team | None = None,
    ) -> None:
        torch.set_num_threads(threads)
        self.cfg = cfg
        self.device = resolve_device(device)
        self.team = team or Team()
        if self.team.size > 1 and self.device.type != "cpu":
            raise InputError(
                "the compact learner shares its work between processes on CPUs only; use learner.type=trl, "
                "or serving.device=cpu"
            )
        self.team.enlist(self)
        self.model = load_causal_lm(Path(model_path), self.device)
        self.version = 0
        autocast = resolve_autocast(cfg.autocast, dtype, self.device)
        self._scorer = Scorer(self.model, self.device, autocast)
        self._reference = self._frozen_copy(autocast) if cfg.kl > 0 else None
        self._optimizers = RoleOptimizers(self.model, cfg)
        pad = self.model.config.pad_token_id
        self._pad_id = pad if isinstance(pad, int) and pad >= 0 else 0
        self.warned = False

    @property
    def micro_tokens(self) -> int:
        """Padded tokens of one forward pass on this device."""
        return pass_tokens(self.cfg, self.device)

    def step(
        self,
        samples: Sequence[Sample],
        temperature: Temperatures = 1.0,
        lr_scale: float = 1.0,
        *,
        old: Logprobs | None = None,
        reference: Logprobs | None = None,
    ) -> dict[str, float]:
        """`epochs` passes over `samples` in `minibatches` optimiser steps each; returns flat metrics.

        Raises `version` by the number of optimiser steps that moved a weight. `temperature` is the sampling
        temperature, one number or one per role; log-probs are scored at it. `lr_scale` multiplies every
        learning rate (schedules live in the caller). `old` and `reference` are learner and reference
        log-probs as `score` returns them: pass `old` when the same samples are used for several calls. With
        several optimiser steps in this call they are scored at its start, and the clip can bind.

        Samples with zero advantage are skipped but stay in the denominators of the loss. A role whose
        gradient is not finite is left out of the update and counted as `skipped_updates`.
        """
        self.team.tell(self, "step", samples, temperature, lr_scale, old=old, reference=reference)
        started, cpu_started = time.perf_counter(), time.process_time()
        epochs, parts = self.cfg.epochs, self.cfg.minibatches
        kept = informative(samples, with_reference=self.cfg.kl > 0)
        if epochs * parts > 1 and old is None:
            old = self._score_some(samples, kept, temperature)
        stride = self._probe_stride(sum(sum(samples[i].mask) for i in kept) * epochs)
        work = _Work(samples, frozenset(kept), temperature, old, reference, stride)
        rng = random.Random(self.version)
        for _ in range(epochs):
            for rows in mini_batches(samples, parts, rng):
                self._update(work, rows, lr_scale)
        others = [x for r, x in enumerate(self.team.gather(work.sums)) if r != self.team.rank]
        work.sums.merge(others)
        metrics = work.sums.metrics() | batch_metrics(samples, len(kept))
        watch_mismatch(self, metrics)
        metrics["seconds"] = time.perf_counter() - started
        metrics["cpu_seconds"] = time.process_time() - cpu_started
        return metrics

    def score(
        self, samples: Sequence[Sample], temperature: Temperatures = 1.0
    ) -> list[npt.NDArray[np.float32]]:
        """The learner's present log-probs: per sample an array over completion tokens, 0.0 where unmasked."""
        return score_samples(self._scorer, samples, temperature, self.micro_tokens, self._pad_id)

    def entropies(
        self, samples: Sequence[Sample], temperature: Temperatures = 1.0
    ) -> tuple[list[npt.NDArray[np.float32]], list[npt.NDArray[np.float32]]]:
        """Log-probs and exact entropies (nats, whole vocabulary) at the sampled tokens alone, per sample."""
        return entropies_of(self._scorer, samples, temperature, self.micro_tokens, self._pad_id)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """(name, tensor) as in the Hugging Face state dict, tied entries included. Views: copy to keep."""
        for name, tensor in self.model.state_dict().items():
            yield name, tensor.detach()

    def save(self, folder: str | Path) -> None:
        """Write `config.json` and float32 `model.safetensors` into `folder`."""
        save_model(self.model, Path(folder))

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimiser moments and version as plain tensors and numbers; views, not copies."""
        return {
            "version": self.version,
            "weights": dict(self.named_weights()),
            "optimizers": self._optimizers.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state_dict`; training goes on bit-identically. `InputError` if it does not fit."""
        self.team.tell(self, "load_state_dict", state)
        load_weights(self.model, state["weights"])
        self._optimizers.load_state_dict(state["optimizers"])
        self.version = int(state["version"])

    def close(self) -> None:
        """Let the other processes of the team go. Idempotent."""
        self.team.dismiss()

    def _frozen_copy(self, autocast: torch.dtype | None) -> Scorer:
        return Scorer(copy.deepcopy(self.model).requires_grad_(False), self.device, autocast)

    def _score_some(
        self, samples: Sequence[Sample], rows: Sequence[int], temperature: Temperatures
    ) -> list[npt.ArrayLike]:
        """`score` of the samples `rows`; zeros for the others, which no loss looks at."""
        out: list[npt.ArrayLike] = [np.zeros(len(s.completion_ids), np.float32) for s in samples]
        mine = self.team.share(rows)
        scored = dict(zip(mine, self.score([samples[i] for i in mine], temperature), strict=True))
        for part in self.team.gather(scored):
            for i, values in part.items():
                out[i] = values
        return out

    def _probe_stride(self, tokens: int) -> int:
        wanted = self.cfg.entropy_tokens
        return max(1, -(-tokens // wanted)) if wanted else 0

    def _update(self, work: _Work, rows: Sequence[int], lr_scale: float) -> None:
        """One optimiser step on the samples `rows`. The loss divides by those of the role, or by all of them
        when the roles share an optimiser; only those that can move a weight are run."""
        samples, counted = work.samples, by_role(work.samples, rows)
        gradients: dict[str, list[Tensor]] = {}
        for role, mine in by_role(samples, [i for i in rows if i in work.kept]).items():
            units = [samples[i] for i in (counted[role] if self.cfg.optimizer_per_role else rows)]
            sizes = count_episodes(units), sum(sum(s.mask) for s in units)
            gradients[role] = self._accumulate(work, role, mine, sizes)
        if not gradients:
            return
        norms, stepped = self._optimizers.apply(gradients, lr_scale)
        wanted = len(gradients) if self.cfg.optimizer_per_role else 1
        work.sums.updated(norms, wanted - stepped)
        self.version += int(stepped > 0)

    def _accumulate(
        self, work: _Work, role: str, rows: Sequence[int], sizes: tuple[int, int]
    ) -> list[Tensor]:
        """Gradient of the loss of one role's samples, one tensor a parameter."""
        old, reference = work.arrays(rows)
        mine = [work.samples[i] for i in rows]
        batches = micro_batches(mine, self.micro_tokens, self._pad_id, self.team.size)
        for batch in self.team.share(batches):
            temperature_B = row_temperatures(batch, work.temperature)
            tokens = int(batch.mask_BT.sum())
            probe = range(-work.sums.tokens % work.stride, tokens, work.stride) if work.stride else ()
            logprobs_N, entropy = self._scorer.with_entropy(batch, temperature_B, probe)
            weights_B = token_weights(batch, self.cfg.loss, *sizes)
            loss, stats = policy_loss(
                logprobs_N,
                self._masked(batch, batch.old_logprobs_BT),
                self._masked(batch, np.broadcast_to(batch.advantages_B[:, None], batch.ids_BT.shape)),
                self._masked(batch, np.broadcast_to(weights_B[:, None], batch.ids_BT.shape)),
                self.cfg,
                old_N=None if old is None else self._masked(batch, batch.align(old)),
                reference_N=self._reference_logprobs(batch, temperature_B, reference),
                rows_N=torch.from_numpy(np.nonzero(batch.mask_BT)[0]).to(self.device),
            )
            torch.autograd.backward(loss)
            work.sums.add(
                role, batch, _numbers(loss=loss.detach(), entropy=entropy.sum(), **stats), len(probe)
            )
        parameters = self._optimizers.parameters.values()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        self.model.zero_grad(set_to_none=True)
        self.team.add(gradients)
        return gradients

    def _reference_logprobs(
        self, batch: PackedBatch, temperature_B: npt.NDArray[np.float64], reference: Logprobs | None
    ) -> Tensor | None:
        if reference is not None:
            return self._masked(batch, batch.align(reference))
        if self._reference is None:
            return None
        with torch.no_grad():
            return self._reference(batch, temperature_B)

    def _masked(self, batch: PackedBatch, values_BT: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(values_BT[batch.mask_BT].astype(np.float32)).to(self.device)


def _numbers(**tensors: Tensor) -> dict[str, float]:
    """Scalars on the host, in one transfer: on a GPU each by itself would wait for the device."""
    values: list[float] = torch.stack([t.double() for t in tensors.values()]).tolist()
    return dict(zip(tensors, values, strict=True))
