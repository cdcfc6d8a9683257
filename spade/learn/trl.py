"""The learner for models that need more than one plain process: TRL's GRPOTrainer behind `Learner`.

Same samples, same weights of tokens, same loss as the compact learner; accelerate places the model (one
process, data parallel, FSDP2, DeepSpeed), peft adds LoRA. There is one optimiser for all roles. What TRL
would put into a checkpoint of its own is part of SPADE's: `state_dict` holds the moments under the names of
the parameters, the folder `save` writes is a plain model. Nothing else in the trainer has a memory: batches,
learning rate and seeds come from the training loop.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spade.config import LearnerConfig
from spade.errors import InputError
from spade.learn import shards, zero
from spade.learn.batch import by_role, count_episodes, dealt_batches, informative, mini_batches
from spade.learn.learner import Logprobs, Temperatures
from spade.learn.mismatch import watch_mismatch
from spade.learn.optimizers import SHARED
from spade.learn.parallel import join
from spade.learn.scoring import Scorer, entropies_of, resolve_autocast, resolve_device, score_samples
from spade.learn.sums import StepSums, batch_metrics
from spade.learn.trainer import pass_tokens
from spade.learn.trl_batch import Micro, cut_of, trl_inputs
from spade.learn.trl_open import open_trainer
from spade.types import Sample

ADAPTER_FOLDER = "adapter"
"""Folder of a checkpoint that holds the LoRA adapter by itself, as peft writes it."""


class TrlLearner:
    """Owns the policy through TRL's trainer. See `spade.learn.learner.Learner` for the methods.

    `temperature` is that of all samples. `dtype` decides the compute type as in `CompactLearner`;
    `cfg.trl.weights` the type of the weights. With `cfg.kl` > 0 the start model is the reference, so
    construct from the start model and then `load_state_dict`. Construct in every process of a launch.
    Raises `InputError` for a folder that cannot be used, or a TRL that is not there or too new.
    """

    def __init__(
        self,
        model_path: str | Path,
        cfg: LearnerConfig,
        device: str = "auto",
        dtype: str = "auto",
        threads: int = 1,
        temperature: float = 1.0,
    ) -> None:
        torch.set_num_threads(threads)
        self.cfg, self.temperature = cfg, temperature
        self.version, self.warned = 0, False
        self._scratch = tempfile.TemporaryDirectory(prefix="spade-trl-")
        wanted = resolve_device(device)
        autocast = resolve_autocast(cfg.autocast, dtype, wanted)
        self.trainer = open_trainer(
            Path(model_path), cfg, self._scratch.name, temperature, wanted, autocast is not None
        )
        self.team = join()
        self.team.enlist(self)
        self.device = self.trainer.args.device
        self._pad_id = int(self.trainer._tokenizer.pad_token_id)
        self.zero = bool(self.trainer.is_deepspeed_enabled)
        self.sharded = self.zero or shards.is_sharded(self.model)
        self._scorer = None if self.sharded else Scorer(self._base, self.device, autocast)

    @property
    def model(self) -> Any:
        """The Hugging Face model, or the peft model around it."""
        return self.trainer.accelerator.unwrap_model(self.trainer.model)

    @property
    def _base(self) -> Any:
        return self.model.get_base_model() if self.cfg.trl.lora_rank else self.model

    @property
    def _parameters(self) -> dict[str, Tensor]:
        return {n: p for n, p in self.model.named_parameters() if p.requires_grad}

    @property
    def micro_tokens(self) -> int:
        """Padded tokens of one forward pass on this device."""
        return pass_tokens(self.cfg, self.device)

    # --- training ----------------------------------------------------------------------------------------

    def step(
        self,
        samples: Sequence[Sample],
        temperature: Temperatures = 1.0,
        lr_scale: float = 1.0,
        *,
        old: Logprobs | None = None,
        reference: Logprobs | None = None,
    ) -> dict[str, float]:
        """`epochs` passes over `samples` in `minibatches` optimiser steps each; see `CompactLearner.step`.

        ValueError when `temperature` is not the one the learner was made for.
        """
        self._check_temperature(temperature)
        self.team.tell(self, "step", samples, temperature, lr_scale, old=old, reference=reference)
        started, cpu_started = time.perf_counter(), time.process_time()
        epochs, parts = self.cfg.epochs, self.cfg.minibatches
        kept = informative(samples, with_reference=self.cfg.kl > 0)
        if epochs * parts > 1 and old is None:
            old = self._score_present(samples, kept)
        sums, rng = StepSums(), random.Random(self.version)
        for _ in range(epochs):
            for rows in mini_batches(samples, parts, rng):
                micros = self._micros(samples, rows, frozenset(kept), old, reference)
                if micros:
                    self._update(micros, sums, lr_scale)
        sums.merge([x for r, x in enumerate(self.team.gather(sums)) if r != self.team.rank])
        metrics = sums.metrics() | batch_metrics(samples, len(kept))
        watch_mismatch(self, metrics)
        metrics["seconds"] = time.perf_counter() - started
        metrics["cpu_seconds"] = time.process_time() - cpu_started
        return metrics

    def _update(self, micros: list[Micro], sums: StepSums, lr_scale: float) -> None:
        from spade.learn.trl_trainer import Update

        norm = self.trainer.update(Update(micros, self.cfg.lr * lr_scale, sums))
        moved = bool(np.isfinite(norm))
        sums.updated({SHARED: norm}, int(not moved))
        self.version += int(moved)

    def _micros(
        self,
        samples: Sequence[Sample],
        rows: Sequence[int],
        kept: frozenset[int],
        old: Logprobs | None,
        reference: Logprobs | None,
    ) -> list[Micro]:
        """This process's forward passes: as many as in any other. The roles share denominators."""
        units = [samples[i] for i in rows]
        sizes = count_episodes(units), sum(sum(s.mask) for s in units)
        micros: list[Micro] = []
        for role, mine in by_role(samples, [i for i in rows if i in kept]).items():
            chosen = [samples[i] for i in mine]
            where = self.team.rank, self.team.size
            given = [None if x is None else [x[i] for i in mine] for x in (old, reference)]
            for batch, wanted in dealt_batches(chosen, self.micro_tokens, self._pad_id, *where):
                micros.append(Micro(role, batch, wanted, sizes, *given))
        return micros

    def _score_present(self, samples: Sequence[Sample], rows: Sequence[int]) -> list[npt.ArrayLike]:
        """Present log-probs of the samples `rows` by the trainer's own forward pass; zeros for the others."""
        found: dict[int, npt.NDArray[np.float32]] = {}
        of_role = by_role(samples, rows)
        for micro in self._micros(samples, rows, frozenset(rows), None, None):
            logps = self.trainer.per_token(trl_inputs(micro, self._pad_id, self.device)).cpu().numpy()
            batch = micro.batch
            if batch is None:
                continue
            full_BT = np.zeros(batch.ids_BT.shape, np.float32)
            full_BT[:, cut_of(batch) :] = logps[: len(batch.rows)]
            full_BT *= batch.mask_BT
            for row, index in enumerate(batch.rows):
                values = full_BT[row, batch.starts_B[row] : batch.lengths_B[row]]
                found[of_role[micro.role][index]] = values.copy()
        everyone = {i: values for part in self.team.gather(found) for i, values in part.items()}
        return [everyone.get(i, np.zeros(len(s.completion_ids), np.float32)) for i, s in enumerate(samples)]

    def _check_temperature(self, temperature: Temperatures) -> None:
        values = temperature.values() if isinstance(temperature, Mapping) else [temperature]
        if any(abs(v - self.temperature) > 1e-9 for v in values):
            raise ValueError(f"this learner scores at temperature {self.temperature:g}, not {temperature}")

    # --- looking ------------------------------------------------------------------------------------------

    def score(
        self, samples: Sequence[Sample], temperature: Temperatures = 1.0
    ) -> list[npt.NDArray[np.float32]]:
        """Present log-probs. Raises `InputError` for a model that is spread over processes."""
        return score_samples(self._whole_scorer(), samples, temperature, self.micro_tokens, self._pad_id)

    def entropies(
        self, samples: Sequence[Sample], temperature: Temperatures = 1.0
    ) -> tuple[list[npt.NDArray[np.float32]], list[npt.NDArray[np.float32]]]:
        """Log-probs and exact entropies. Raises `InputError` for a model that is spread over processes."""
        return entropies_of(self._whole_scorer(), samples, temperature, self.micro_tokens, self._pad_id)

    def _whole_scorer(self) -> Scorer:
        if self._scorer is None:
            raise InputError(
                "the model is spread over several processes, so one of them cannot look at its distribution; "
                "set train.lens.every=0"
            )
        return self._scorer

    # --- weights and state --------------------------------------------------------------------------------

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """(name, full tensor), adapters merged. Tied entries are included. Copy to keep."""
        if self.sharded:
            self.team.tell(self, "hand_over_weights")
        yield from self._named()

    def hand_over_weights(self) -> None:
        """In the other processes: take part while rank 0 collects the weights."""
        for _ in self._named():
            pass

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        named = zero.named_gathered if self.zero else shards.named_whole
        return shards.named_merged(self.model, named) if self.cfg.trl.lora_rank else named(self.model)

    def save(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors`, adapters merged, and the adapter in `adapter/`."""
        shards.write_model(self._base, self.named_weights(), Path(folder))
        if self.zero:
            self.team.tell(self, "save_engine", str(folder))
            self.save_engine(str(folder))
        if self.cfg.trl.lora_rank and not self.zero:
            adapter = self._collect()["adapter"] if self.sharded else None
            self.model.save_pretrained(Path(folder) / ADAPTER_FOLDER, state_dict=adapter)

    def save_engine(self, folder: str) -> None:
        """In every process: DeepSpeed's part of a checkpoint."""
        zero.save_engine(self.trainer.model_wrapped, Path(folder))

    def state_dict(self) -> dict[str, Any]:
        """Weights (unless they are spread over processes: then `save` writes them), moments, version, and
        the adapter's own tensors with LoRA."""
        weights = {} if self.sharded else dict(self.named_weights())
        return {"version": self.version, "weights": weights, **self._collect()}

    def _collect(self) -> dict[str, Any]:
        if self.sharded:
            self.team.tell(self, "hand_over_state")
        return self.hand_over_state()

    def hand_over_state(self) -> dict[str, Any]:
        """Moments and adapter; in the other processes: take part while rank 0 collects them."""
        if self.zero:
            return {"optimizers": {}}
        moments = shards.moments_of(self.trainer.optimizer.optimizer, self._parameters)
        found: dict[str, Any] = {"optimizers": {SHARED: moments} if moments else {}}
        if self.cfg.trl.lora_rank:
            found["adapter"] = {n: shards.whole(p) for n, p in self._parameters.items()}
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state_dict`; training goes on bit-identically. `InputError` if it does not fit."""
        self.team.tell(self, "load_state_dict", state)
        if self.zero:
            zero.load_engine(self.trainer.model_wrapped, Path(state["path"]))
        elif self.cfg.trl.lora_rank:
            shards.load_adapter(self._parameters, state.get("adapter", {}))
        else:
            shards.load_weights(self.model, state["weights"])
        for moments in state["optimizers"].values():
            shards.load_moments(self.trainer.optimizer.optimizer, self._parameters, moments)
        self.version = int(state["version"])

    def close(self) -> None:
        """End TRL's loop in every process. Idempotent."""
        self.team.dismiss()
        self.trainer.stop()
        self._scratch.cleanup()
