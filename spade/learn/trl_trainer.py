"""TRL's GRPOTrainer, fed with finished samples.

The trainer's own loop runs in a thread of its own, so that the training loop of SPADE can call `update` like
any other function: each turn of TRL's loop waits for one `Update`, runs its micro-batches forward and
backward, and lets TRL and accelerate do the rest (gradients over processes, clipping, the optimiser, FSDP2,
DeepSpeed). Where TRL would generate, score rewards and compute advantages, the samples already have all that.

What is overridden, and pinned by `spade.learn.trl_seam`:

    _generate_and_score_completions   an update's micro-batches, as the dictionaries the loss reads
    _prepare_inputs                   nothing to slice: one dictionary is one forward pass
    training_step                     several forward and backward passes, one optimiser step
    _get_per_token_logps_and_entropies, log   looked at on the way, for the metrics
"""

from __future__ import annotations

import contextlib
import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from spade.config import LearnerConfig
from spade.errors import BackendError
from spade.learn.loss import policy_loss
from spade.learn.shards import whole
from spade.learn.sums import StepSums
from spade.learn.trl_args import TRL_ONLY
from spade.learn.trl_batch import Micro, add_loss_terms, aligned, cut_of, sampled, trl_inputs


@dataclass(slots=True)
class Update:
    """One optimiser step to be taken."""

    micros: list[Micro]
    """As many in every process."""
    lr: float
    sums: StepSums
    """Filled with this process's statistics."""
    done: Future[float] = field(default_factory=Future)
    """Norm of the gradient before clipping; not finite when the step was left out."""


class _Stop(Exception):
    """Ends TRL's loop from inside."""


class SpadeTrainer(GRPOTrainer):  # type: ignore[misc]
    """One for each learner. Construct in every process, in the same order; then `start`."""

    def __init__(
        self, model: Any, cfg: LearnerConfig, args: GRPOConfig, tokenizer: Any, peft_config: Any = None
    ) -> None:
        self.spade = cfg
        self._todo: queue.SimpleQueue[Update | None] = queue.SimpleQueue()
        self._update: Update | None = None
        self._ready: Future[None] = Future()
        self._seen: tuple[Tensor, Tensor | None] | None = None
        self._skipped = False
        super().__init__(
            model=model,
            reward_funcs=[_no_reward],
            args=args,
            train_dataset=Dataset.from_dict({"prompt": ["-"] * (1024 * args.world_size)}),
            processing_class=tokenizer,
            peft_config=peft_config,
        )
        self.remove_callback(PrinterCallback)
        self.add_callback(_SkipNotFinite(self))
        self._thread = threading.Thread(
            target=self._run, args=(torch.get_num_threads(),), name="spade-trl", daemon=True
        )

    # --- called by the learner ---------------------------------------------------------------------------

    def start(self) -> None:
        """Begin TRL's loop and wait until it asks for the first update: model and optimiser are placed."""
        self._thread.start()
        self._ready.result()

    def update(self, update: Update) -> float:
        """Take one optimiser step; returns the gradient's norm. Raises BackendError when TRL's loop died."""
        if not self._thread.is_alive():
            raise BackendError("TRL's training loop has ended; start the command again to resume")
        self._todo.put(update)
        return update.done.result()

    def stop(self) -> None:
        """End TRL's loop. Idempotent."""
        if self._thread.is_alive():
            self._todo.put(None)
            self._thread.join()

    def per_token(self, inputs: dict[str, Tensor], model: Any = None) -> Tensor:
        """Log-probs (B, T) of the completions of `trl_inputs`, without gradient; collective when sharded."""
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        with torch.no_grad():
            found = super()._get_per_token_logps_and_entropies(
                self.model if model is None else model, ids, mask, inputs["completion_ids"].shape[1]
            )
        logps: Tensor = found[0]
        return logps

    # --- TRL's loop --------------------------------------------------------------------------------------

    def _run(self, threads: int) -> None:
        torch.set_num_threads(threads)  # torch keeps this number, and the GPU, for each thread
        if self.args.device.type == "cuda":
            torch.cuda.set_device(self.args.device)
        try:
            self.train()
        except _Stop:
            return
        except BaseException as error:
            if isinstance(error, torch.OutOfMemoryError):
                error = BackendError(
                    "the update ran out of GPU memory; lower learner.micro_tokens, or set "
                    "learner.trl.gradient_checkpointing=true"
                )
            waiting: list[Future[Any]] = [self._ready, *([self._update.done] if self._update else [])]
            for future in waiting:
                if not future.done():
                    future.set_exception(error)

    def _send_telemetry(self) -> None:
        """A training run tells nobody."""

    def get_decay_parameter_names(self, model: Any) -> list[str]:
        """All of them, as in the compact learner."""
        return [name for name, _ in model.named_parameters()]

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Wait for an update and run it up to the optimiser's step."""
        if not self._ready.done():
            self._ready.set_result(None)
        self._update = self._todo.get()
        if self._update is None:
            raise _Stop
        for group in self.optimizer.param_groups:
            group["lr"] = self._update.lr
        total = torch.zeros((), device=self.args.device)
        batches = self._generate_and_score_completions(inputs)
        for k, (micro, batch) in enumerate(zip(self._update.micros, batches, strict=True)):
            last = k == len(batches) - 1
            self.accelerator.gradient_state._set_sync_gradients(last)
            apart = (
                contextlib.nullcontext() if last or self._always_syncs else self.accelerator.no_sync(model)
            )
            with apart:
                loss = super().training_step(model, batch, None)
            total += loss
            self._count(micro, batch, float(loss) / self.accelerator.num_processes)
        mean: Tensor = total / self.accelerator.num_processes
        return mean

    @property
    def _always_syncs(self) -> bool:
        plugin = self.accelerator.gradient_state.plugin_kwargs
        return bool(plugin.get("sync_each_batch", False)) or self.is_deepspeed_enabled

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        return generation_batch

    def _generate_and_score_completions(self, inputs: Any) -> list[dict[str, Tensor]]:
        assert self._update is not None
        return [self._terms(micro) for micro in self._update.micros]

    def _terms(self, micro: Micro) -> dict[str, Tensor]:
        """What TRL's loss reads, for one forward pass."""
        cfg = self.spade
        found = trl_inputs(micro, self._tokenizer.pad_token_id, self.args.device)
        # `old` is given or scored before the first of several updates; alone, it is the present
        given = micro.old if micro.batch is not None else None
        old = None if given is None else aligned(micro, given, self.args.device)
        behind = None
        if cfg.tis_max > 0 and (micro.old is None or cfg.loss == "reinforce"):
            behind = self.per_token(found)
        elif old is not None:
            behind = old
        if self.beta != 0.0:
            found["ref_per_token_logps"] = self._reference(micro, found)
        if behind is not None and micro.batch is not None:
            behind = behind - sampled(micro, self.args.device)
        found = add_loss_terms(found, micro, cfg, behind, self.accelerator.num_processes)
        if old is not None and cfg.loss != "reinforce":
            found["old_per_token_logps"] = old
        return found

    def _reference(self, micro: Micro, found: dict[str, Tensor]) -> Tensor:
        """Log-probs of the start model. Runs it in every process, whoever has rows."""
        if micro.reference is not None:
            if micro.batch is None:
                return torch.zeros_like(found["completion_ids"], dtype=torch.float32)
            return aligned(micro, micro.reference, self.args.device)
        if self.ref_model is not None:
            return self.per_token(found, self.ref_model)
        with self.accelerator.unwrap_model(self.model).disable_adapter():
            return self.per_token(found)

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._seen = found[0].detach(), None if found[1] is None else found[1].detach()
        return found

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """The last thing TRL's loop does in a step: here the step is done."""
        update, self._update = self._update, None
        self._metrics["train"].clear()
        if update is not None:
            update.done.set_result(float("nan") if self._skipped else float(logs.get("grad_norm", 0.0)))
        self._skipped = False

    # --- statistics --------------------------------------------------------------------------------------

    def _count(self, micro: Micro, inputs: dict[str, Tensor], loss: float) -> None:
        """Add what was just trained on to the sums, as the compact learner counts it."""
        assert self._update is not None and self._seen is not None
        if micro.batch is None:
            return
        batch, (logps, entropies) = micro.batch, self._seen
        mask = torch.zeros(logps.shape, dtype=torch.bool, device=logps.device)
        mask[: len(batch.rows)] = torch.from_numpy(batch.mask_BT[:, cut_of(batch) :])
        cfg = self.spade.model_copy(update={"loss": "dapo"}) if self.spade.loss in TRL_ONLY else self.spade
        weights = torch.ones_like(logps[mask])
        rows = torch.nonzero(mask)[:, 0]
        advantages = torch.from_numpy(batch.advantages_B).to(logps.device, torch.float32)[rows]
        old, reference = inputs.get("old_per_token_logps"), inputs.get("ref_per_token_logps")
        with torch.no_grad():
            _, stats = policy_loss(
                logps[mask].float(),
                sampled(micro, logps.device)[mask],
                advantages,
                weights,
                cfg,
                old_N=None if old is None else old[mask],
                reference_N=None if reference is None else reference[mask],
                rows_N=rows,
            )
        numbers = {name: float(value) for name, value in stats.items()}
        numbers |= {"loss": loss, "entropy": 0.0 if entropies is None else float(entropies[mask].sum())}
        self._update.sums.add(micro.role, batch, numbers, 0 if entropies is None else int(mask.sum()))


class _SkipNotFinite(TrainerCallback):  # type: ignore[misc]
    """A gradient that is not finite moves nothing: the weights stay, the step is counted as left out."""

    def __init__(self, trainer: SpadeTrainer) -> None:
        self.trainer = trainer

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        grads = [p.grad for p in self.trainer.model.parameters() if p.grad is not None]
        if grads and not bool(torch.isfinite(whole(torch.nn.utils.get_total_norm(grads)))):
            self.trainer._skipped = True
            self.trainer.model.zero_grad(set_to_none=True)


def _no_reward(**kwargs: Any) -> list[float]:
    """TRL wants a reward function; samples come with their advantage."""
    raise AssertionError("no reward is computed here")
