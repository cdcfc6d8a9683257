"""Fine-tune a checkpoint on rows of tokens with TRL's SFTTrainer; interrupted work goes on.

OUT/config.json, model.safetensors, tokenizer files   the finished model (adapters merged)
OUT/sft.json                                          what it was made of and from
OUT/trainer/checkpoint-N                              the trainer's own checkpoints; gone in the end
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from spade.errors import InputError
from spade.files import read_json, write_json
from spade.interrupt import StopFlag
from spade.learn.checkpoint import copy_tokenizer, load_causal_lm
from spade.learn.ranks import world
from spade.learn.scoring import resolve_autocast, resolve_device
from spade.learn.shards import named_merged, named_whole, write_model
from spade.learn.trl_open import quiet
from spade.sft.rows import Row

RECORD = "sft.json"
TRAINER = "trainer"


@dataclass(frozen=True, slots=True)
class Settings:
    """How to fine-tune. `batch` counts rows of one optimiser step, over all processes."""

    epochs: float = 1.0
    lr: float = 1e-4
    batch: int = 16
    micro_batch: int = 4
    warmup: float = 0.05
    """Share of the steps in which the learning rate rises; then it falls to 0 on half a cosine."""
    weight_decay: float = 0.0
    lora_rank: int = 0
    save_every: int = 50
    """Steps between checkpoints of the trainer."""
    seed: int = 0
    device: str = "auto"
    dtype: str = "auto"
    threads: int = 1


def fine_tune(
    model: Path, rows: Sequence[Row], out: Path, settings: Settings, record: dict[str, Any], stop: StopFlag
) -> dict[str, Any]:
    """Train, or go on from the last checkpoint in `out`; returns a summary.

    `record` says what the rows were made of; `out` is only gone on with under the same record and settings.
    Raises `InputError` for a folder that holds something else, or a package that is missing.
    """
    plan = {**record, "settings": asdict(settings), "rows": len(rows)}
    done = _look(out, plan)
    if done is not None:
        return done
    trainer, config = _trainer(model, rows, out / TRAINER, settings)
    main = trainer.is_world_process_zero()
    if main:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / RECORD, {**plan, "status": "running"})
    trainer.add_callback(_stopper(stop))
    last = _last_checkpoint(out / TRAINER)
    with quiet():
        outcome = trainer.train(resume_from_checkpoint=str(last) if last else None)
    summary = {
        "steps": trainer.state.global_step,
        "loss": _finite(outcome.training_loss),
        "tokens": sum(len(r.input_ids) for r in rows),
        "status": "interrupted" if trainer.state.global_step < trainer.state.max_steps else "finished",
    }
    if summary["status"] == "finished":
        unwrapped = trainer.accelerator.unwrap_model(trainer.model)
        named = named_merged(unwrapped) if settings.lora_rank else named_whole(unwrapped)
        if main:
            write_model(unwrapped.get_base_model() if settings.lora_rank else unwrapped, named, out)
            for name, text in config.items():
                (out / name).write_text(text, encoding="utf-8")
            copy_tokenizer(model, out)
            shutil.rmtree(out / TRAINER, ignore_errors=True)
        else:
            for _ in named:
                pass
    if main:
        write_json(out / RECORD, {**plan, **summary})
    return summary


def _look(out: Path, plan: dict[str, Any]) -> dict[str, Any] | None:
    """The summary of a finished folder; None for work to do. Raises InputError for somebody else's folder."""
    if not out.exists():
        return None
    if not (out / RECORD).is_file():
        if any(out.iterdir()):
            raise InputError(
                f"{out} exists and is not the work of spade sft; choose another folder with --out"
            )
        return None
    found = read_json(out / RECORD, "fine-tuning record")
    differs = [key for key in plan if found.get(key) != plan[key]]
    if differs:
        raise InputError(
            f"{out} was made from something else ({', '.join(differs)} differ); choose another folder with "
            "--out"
        )
    keys = ("steps", "loss", "tokens", "status")
    return {key: found.get(key) for key in keys} if found.get("status") == "finished" else None


def _trainer(
    model: Path, rows: Sequence[Row], folder: Path, settings: Settings
) -> tuple[Any, dict[str, str]]:
    """The trainer, and the texts of the model's settings: TRL writes the tokenizer's special tokens into
    them, but what is saved is the user's."""
    try:
        from trl import SFTConfig, SFTTrainer
    except ModuleNotFoundError as error:
        raise InputError(
            f"spade sft needs the module '{error.name}', which is not installed; run pip install "
            "'spade-rl[trl]'"
        ) from error
    from datasets import Dataset
    from transformers import AutoTokenizer, PrinterCallback

    torch.set_num_threads(settings.threads)
    device = resolve_device(settings.device)
    if device.type == "cpu":
        # accelerate would number the CPU of each process, and torch cannot load a checkpoint onto "cpu:0"
        os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "cpu")
    args = SFTConfig(**_arguments(folder, settings, device))
    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True, trust_remote_code=False)
    names = ("config.json", "generation_config.json")
    config = {name: (model / name).read_text(encoding="utf-8") for name in names if (model / name).is_file()}
    loaded = load_causal_lm(model, torch.device(args.device))
    data = Dataset.from_list([{"input_ids": r.input_ids, "labels": r.labels} for r in rows])
    trainer = _silent(SFTTrainer)(
        model=loaded, args=args, train_dataset=data, processing_class=tokenizer, peft_config=_lora(settings)
    )
    trainer.remove_callback(PrinterCallback)
    return trainer, config


def _silent(trainer: Any) -> Any:
    """The trainer without what it tells its makers."""
    return type("SpadeSFTTrainer", (trainer,), {"_send_telemetry": lambda self: None})


def _arguments(folder: Path, settings: Settings, device: torch.device) -> dict[str, Any]:
    cpu, processes = device.type == "cpu", world()[1]
    each = math.ceil(settings.batch / processes)
    micro = min(settings.micro_batch, each)
    return {
        "output_dir": str(folder),
        "num_train_epochs": settings.epochs,
        "learning_rate": settings.lr,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": math.ceil(each / micro),
        "warmup_steps": settings.warmup,
        "lr_scheduler_type": "cosine",
        "weight_decay": settings.weight_decay,
        "seed": settings.seed,
        "data_seed": settings.seed,
        "use_cpu": cpu,
        "ddp_backend": "gloo" if cpu and processes > 1 else None,
        "ddp_find_unused_parameters": False,
        "bf16": resolve_autocast("auto", settings.dtype, device) is not None,
        "gradient_checkpointing": False,
        "train_sampling_strategy": "group_by_length",
        "dataloader_pin_memory": False,
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "max_length": None,
        "packing": False,
        "loss_type": "nll",
        "save_steps": settings.save_every,
        "save_total_limit": 1,
        "logging_steps": 10,
        "report_to": "none",
        "disable_tqdm": True,
    }


def _lora(settings: Settings) -> Any:
    if not settings.lora_rank:
        return None
    from peft import LoraConfig

    rank = settings.lora_rank
    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")


def _stopper(stop: StopFlag) -> Any:
    """Save and end after the step in which a stop was requested."""
    from transformers import TrainerCallback

    class Stopper(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if _agreed(stop.requested, args.device):
                control.should_save = control.should_training_stop = True

    return Stopper()


def _agreed(requested: bool, device: torch.device) -> bool:
    """Whether any process was asked to stop: all have to end after the same step."""
    if world()[1] == 1:
        return requested
    asked = torch.tensor(float(requested), device=device)
    torch.distributed.all_reduce(asked, torch.distributed.ReduceOp.MAX)
    return bool(asked)


def _last_checkpoint(folder: Path) -> Path | None:
    from transformers.trainer_utils import get_last_checkpoint

    found = get_last_checkpoint(str(folder)) if folder.is_dir() else None
    return Path(found) if found else None


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
