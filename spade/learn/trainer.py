"""The compact learner: one process, plain torch, a Hugging Face model, full-precision master weights.

One `step` is one update: gradients of every role are accumulated at the same weights over micro-batches of
equal-length rows, clipped, and applied by that role's own AdamW. It is the reference for the mathematics;
same samples and same thread count give bit-identical weights.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spade.errors import InputError
from spade.learn.batch import PackedBatch, informative, micro_batches, token_weights
from spade.learn.checkpoint import load_causal_lm, save_model
from spade.learn.loss import StepSums, policy_loss
from spade.learn.scoring import Scorer, resolve_autocast, resolve_device
from spade.types import Sample

CPU_MICRO_TOKENS = 2048
"""Cap of `learner.micro_tokens` on a CPU: larger passes leave the cache (`benchmarks/learn.py`)."""

SHARED = "shared"
"""Name of the only optimiser when `optimizer_per_role` is off."""

Temperatures = float | Mapping[str, float]


class CompactLearner:
    """Owns the trainable policy and its optimisers. `cfg` is `spade.config.LearnerConfig`.

    `model_path` is a folder with `config.json` and safetensors weights. `dtype` only decides the compute
    type when `cfg.autocast` is "auto": "auto" uses bfloat16 where the hardware multiplies it natively,
    "float32" and "bfloat16" insist; master weights are float32 always. With `cfg.kl` > 0 a frozen copy of
    the start weights is the reference, so construct from the start model and then `load_state_dict`.

    `threads` is set for the whole process; results are reproducible for one fixed number.
    Raises `InputError` for a folder that cannot be used or a device that is not there.
    """

    def __init__(
        self,
        model_path: str | Path,
        cfg: Any,
        device: str = "auto",
        dtype: str = "auto",
        threads: int = 1,
    ) -> None:
        torch.set_num_threads(threads)
        self.cfg = cfg
        self.device = resolve_device(device)
        self.model = load_causal_lm(Path(model_path), self.device)
        self.version = 0
        autocast = resolve_autocast(cfg.autocast, dtype, self.device)
        self._scorer = Scorer(self.model, self.device, autocast)
        self._reference = self._frozen_copy(autocast) if cfg.kl > 0 else None
        self._parameters = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self._optimizers: dict[str, torch.optim.AdamW] = {}
        pad = self.model.config.pad_token_id
        self._pad_id = pad if isinstance(pad, int) and pad >= 0 else 0

    @property
    def micro_tokens(self) -> int:
        """Padded tokens of one forward pass on this device."""
        limit = int(self.cfg.micro_tokens)
        return min(limit, CPU_MICRO_TOKENS) if self.device.type == "cpu" else limit

    def step(
        self,
        samples: Sequence[Sample],
        temperature: Temperatures = 1.0,
        lr_scale: float = 1.0,
        *,
        old: Sequence[npt.ArrayLike] | None = None,
        reference: Sequence[npt.ArrayLike] | None = None,
    ) -> dict[str, float]:
        """One update on `samples`; returns flat metrics and raises `version` if any weight moved.

        `temperature` is the sampling temperature, one number or one per role; log-probs are scored at it.
        `lr_scale` multiplies every learning rate (schedules live in the caller). `old` and `reference` are
        learner and reference log-probs, one array a sample and one number a completion token, as `score`
        returns them: pass `old` when the same samples are used for several updates.

        Samples with zero advantage are skipped but stay in the denominators of the loss. A role whose
        gradient is not finite is left out of the update and counted as `skipped_updates`.
        """
        started, cpu_started = time.perf_counter(), time.process_time()
        sums = StepSums()
        dropped = 0
        gradients: dict[str, list[Tensor]] = {}
        for name, rows in self._partition(samples).items():
            chosen = [samples[i] for i in rows]
            keep = informative(chosen, with_reference=self.cfg.kl > 0)
            dropped += len(rows) - len(keep)
            arrays = [None if x is None else [x[rows[i]] for i in keep] for x in (old, reference)]
            if keep:
                kept = [chosen[i] for i in keep]
                tokens = sum(sum(s.mask) for s in chosen)
                gradients[name] = self._accumulate(kept, temperature, sums, len(rows), tokens, *arrays)
        metrics = sums.metrics() | {"dropped": float(dropped)}
        metrics |= self._apply(gradients, lr_scale)
        metrics["seconds"] = time.perf_counter() - started
        metrics["cpu_seconds"] = time.process_time() - cpu_started
        return metrics

    def score(
        self, samples: Sequence[Sample], temperature: Temperatures = 1.0
    ) -> list[npt.NDArray[np.float32]]:
        """The learner's present log-probs: per sample an array over completion tokens, 0.0 where unmasked."""
        out = [np.zeros(len(s.completion_ids), np.float32) for s in samples]
        with torch.no_grad():
            for batch in micro_batches(samples, self.micro_tokens, self._pad_id):
                logprobs_N = self._scorer(batch, _row_temperatures(batch, temperature))
                full_BT = np.zeros(batch.ids_BT.shape, np.float32)
                full_BT[batch.mask_BT] = logprobs_N.cpu().numpy()
                for row, index in enumerate(batch.rows):
                    out[index] = full_BT[row, batch.starts_B[row] : batch.lengths_B[row]].copy()
        return out

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
            "optimizers": {name: self._moments(opt) for name, opt in self._optimizers.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state_dict`; training goes on bit-identically. `InputError` if it does not fit."""
        weights = dict(state["weights"])
        present = self.model.state_dict()
        missing = [n for n in self._parameters if n not in weights]
        wrong = [n for n, t in weights.items() if n not in present or present[n].shape != t.shape]
        if missing or wrong:
            raise InputError(
                f"the saved weights do not fit this model (first difference: {(missing + wrong)[0]}); "
                "resume with the model the run was started with."
            )
        with torch.no_grad():
            for name, tensor in weights.items():
                present[name].copy_(tensor)
        self._optimizers = {}
        for name, moments in state["optimizers"].items():
            self._restore_moments(self._optimizer(name), moments)
        self.version = int(state["version"])

    def _frozen_copy(self, autocast: torch.dtype | None) -> Scorer:
        return Scorer(copy.deepcopy(self.model).requires_grad_(False), self.device, autocast)

    def _partition(self, samples: Sequence[Sample]) -> dict[str, list[int]]:
        """Sample indices by optimiser name, names sorted so that the order of samples does not matter."""
        groups: dict[str, list[int]] = {}
        for i, sample in enumerate(samples):
            groups.setdefault(sample.role if self.cfg.optimizer_per_role else SHARED, []).append(i)
        return dict(sorted(groups.items()))

    def _accumulate(
        self,
        samples: Sequence[Sample],
        temperature: Temperatures,
        sums: StepSums,
        n_samples: int,
        n_tokens: int,
        old: Sequence[npt.ArrayLike] | None,
        reference: Sequence[npt.ArrayLike] | None,
    ) -> list[Tensor]:
        """Gradient of the loss of one optimiser's samples, one tensor a parameter."""
        for batch in micro_batches(samples, self.micro_tokens, self._pad_id):
            temperature_B = _row_temperatures(batch, temperature)
            logprobs_N = self._scorer(batch, temperature_B)
            weights_B = token_weights(batch, self.cfg.loss, n_samples, n_tokens)
            loss, stats = policy_loss(
                logprobs_N,
                self._masked(batch, batch.old_logprobs_BT),
                self._masked(batch, np.broadcast_to(batch.advantages_B[:, None], batch.ids_BT.shape)),
                self._masked(batch, np.broadcast_to(weights_B[:, None], batch.ids_BT.shape)),
                self.cfg,
                old_N=None if old is None else self._masked(batch, batch.align(old)),
                reference_N=self._reference_logprobs(batch, temperature_B, reference),
            )
            torch.autograd.backward(loss)
            sums.add(batch, loss.detach(), stats, logprobs_N.detach())
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters.values()]
        self.model.zero_grad(set_to_none=True)
        return gradients

    def _reference_logprobs(
        self,
        batch: PackedBatch,
        temperature_B: npt.NDArray[np.float64],
        reference: Sequence[npt.ArrayLike] | None,
    ) -> Tensor | None:
        if reference is not None:
            return self._masked(batch, batch.align(reference))
        if self._reference is None:
            return None
        with torch.no_grad():
            return self._reference(batch, temperature_B)

    def _masked(self, batch: PackedBatch, values_BT: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(values_BT[batch.mask_BT].astype(np.float32)).to(self.device)

    def _apply(self, gradients: Mapping[str, list[Tensor]], lr_scale: float) -> dict[str, float]:
        """Clip and step every optimiser; all gradients were taken at the same weights."""
        metrics = {"skipped_updates": 0.0}
        for name, grads in gradients.items():
            norm = torch.nn.utils.get_total_norm(grads)
            metrics[f"grad_norm/{name}"] = float(norm)
            if not torch.isfinite(norm):
                metrics["skipped_updates"] += 1.0
                continue
            for parameter, grad in zip(self._parameters.values(), grads, strict=True):
                parameter.grad = grad
            torch.nn.utils.clip_grads_with_norm_(self._parameters.values(), self.cfg.grad_clip, norm)
            optimizer = self._optimizer(name)
            for group in optimizer.param_groups:
                group["lr"] = self._lr(name) * lr_scale
            optimizer.step()
            self.model.zero_grad(set_to_none=True)
        moved = len(gradients) > metrics["skipped_updates"]
        self.version += int(moved)
        return metrics

    def _lr(self, name: str) -> float:
        factor = self.cfg.designer_lr_factor if name == "designer" else 1.0
        return float(self.cfg.lr * factor)

    def _optimizer(self, name: str) -> torch.optim.AdamW:
        if name not in self._optimizers:
            self._optimizers[name] = torch.optim.AdamW(
                list(self._parameters.values()),
                lr=self._lr(name),
                betas=tuple(self.cfg.betas),
                weight_decay=self.cfg.weight_decay,
                fused=True,
            )
        return self._optimizers[name]

    def _moments(self, optimizer: torch.optim.AdamW) -> dict[str, Any]:
        """{"step": n, "exp_avg": {parameter name: tensor}, "exp_avg_sq": {...}}."""
        states = {name: optimizer.state[p] for name, p in self._parameters.items()}
        return {
            "step": int(next(iter(states.values()))["step"]),
            "exp_avg": {name: s["exp_avg"] for name, s in states.items()},
            "exp_avg_sq": {name: s["exp_avg_sq"] for name, s in states.items()},
        }

    def _restore_moments(self, optimizer: torch.optim.AdamW, moments: Mapping[str, Any]) -> None:
        for name, parameter in self._parameters.items():
            optimizer.state[parameter] = {
                "step": torch.tensor(float(moments["step"]), device=self.device),
                "exp_avg": moments["exp_avg"][name].clone().to(self.device),
                "exp_avg_sq": moments["exp_avg_sq"][name].clone().to(self.device),
            }


def _row_temperatures(batch: PackedBatch, temperature: Temperatures) -> npt.NDArray[np.float64]:
    values = [temperature[r] if isinstance(temperature, Mapping) else temperature for r in batch.roles]
    if min(values) <= 0:
        raise ValueError("training needs a sampling temperature above 0; greedy plays carry no gradient")
    return np.asarray(values, np.float64)
