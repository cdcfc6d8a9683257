"""Make TRL's trainer for a checkpoint folder: settings, tokenizer, model, adapters."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from spade.config import LearnerConfig
from spade.errors import InputError
from spade.learn.checkpoint import load_causal_lm
from spade.learn.trl_args import trl_settings
from spade.learn.trl_seam import check_seam

if TYPE_CHECKING:
    from spade.learn.trl_trainer import SpadeTrainer


def open_trainer(
    path: Path, cfg: LearnerConfig, scratch: str, temperature: float, device: torch.device, bf16: bool
) -> SpadeTrainer:
    """The trainer of the model in `path`, placed on its device and waiting for the first update.

    Raises `InputError` for a folder that cannot be used and for a TRL that is not there or too new,
    `ConfigError` for `learner.trl.args` that SPADE sets itself.
    """
    check_seam()
    from transformers import AutoTokenizer
    from trl import GRPOConfig

    from spade.learn.trl_trainer import SpadeTrainer

    cpu = device.type == "cpu"
    settings = trl_settings(cfg, scratch, temperature=temperature, bf16=bf16, cpu=cpu)
    try:
        args = GRPOConfig(**settings)
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except (OSError, TypeError, ValueError, KeyError, ImportError) as error:
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"TRL's trainer cannot be made for {path}: {why}") from error
    if tokenizer.pad_token is None and tokenizer.eos_token is None:
        raise InputError(f"the tokenizer in {path} has neither an end-of-text nor a padding token.")
    model = load_causal_lm(path, torch.device(args.device), getattr(torch, cfg.trl.weights))
    with quiet(), _kept(model):
        trainer = SpadeTrainer(model, cfg, args, tokenizer, _lora(cfg))
        trainer.start()
    return trainer


@contextlib.contextmanager
def _kept(model: Any) -> Iterator[None]:
    """TRL changes the model's settings (special tokens, the cache); what is saved is the user's."""
    places = [c for c in (model.config, getattr(model, "generation_config", None)) if c is not None]
    names = ("pad_token_id", "bos_token_id", "eos_token_id", "use_cache")
    before = [(place, name, getattr(place, name, None)) for place in places for name in names]
    yield
    for place, name, value in before:
        setattr(place, name, value)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Both libraries warn of what is done on purpose here: special tokens, a sequence ratio under a sum."""
    loggers = [logging.getLogger(name) for name in ("transformers", "trl")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _lora(cfg: LearnerConfig) -> Any:
    """peft's configuration, or None. Raises InputError when peft is missing."""
    if not cfg.trl.lora_rank:
        return None
    try:
        from peft import LoraConfig
    except ModuleNotFoundError as error:
        raise InputError(
            "learner.trl.lora_rank needs the module 'peft', which is not installed; run pip install "
            "'spade-rl[trl]'"
        ) from error
    return LoraConfig(
        r=cfg.trl.lora_rank,
        lora_alpha=cfg.trl.lora_alpha,
        lora_dropout=0.0,
        target_modules=list(cfg.trl.lora_targets) or "all-linear",
        task_type="CAUSAL_LM",
    )
