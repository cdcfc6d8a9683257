"""`LearnerConfig` in the words of TRL's `GRPOConfig`, and what TRL cannot do of it."""

from __future__ import annotations

from typing import Any

from spade.config import Config, LearnerConfig
from spade.errors import ConfigError
from spade.learn.ranks import world

TRL_ONLY = ("cispo", "sapo", "vespo")
"""Losses that only TRL has."""

FORMS: dict[str, tuple[str, str]] = {
    "gspo": ("dapo", "sequence"),
    "cispo": ("cispo", "token"),
    "sapo": ("sapo", "token"),
    "vespo": ("vespo", "token"),
}
"""`learner.loss` -> TRL's `loss_type` and `importance_sampling_level`; all others are TRL's dapo a token.

What tokens weigh is not left to TRL: SPADE divides by episodes, which may be several rows, and by what was
really played. `trl_batch` puts the weights into the batch, so that TRL's plain sum is the wanted mean.
"""

WEIGHTS = {"cispo": "dapo", "vespo": "dapo", "sapo": "grpo"}
"""Whose token weights (`spade.learn.batch.token_weights`) TRL's own losses take."""

ROWS = 2
"""Rows TRL's data loader believes in: its smallest group. The rows are placeholders."""


def trl_problem(cfg: Config) -> str:
    """Why this configuration cannot be trained as it says, in one sentence; "" if it can."""
    learner = cfg.learner
    if learner.type != "trl":
        if learner.loss in TRL_ONLY:
            return f"learner.loss is {learner.loss}, which only TRL has; set learner.type=trl"
        return ""
    if learner.optimizer_per_role:
        return "learner.type is trl, which has one optimiser for all; set learner.optimizer_per_role=false"
    temperatures = {cfg.play.temperature}
    if cfg.train.source == "self_play" and cfg.design.policy in ("shared", "separate"):
        temperatures.add(cfg.design.temperature)
    if len(temperatures) > 1:
        return (
            "learner.type is trl, which scores all tokens at one temperature; set design.temperature="
            f"{cfg.play.temperature:g} as in play.temperature"
        )
    if learner.kl > 0 and learner.loss in ("sapo", "vespo"):
        return f"learner.loss is {learner.loss}, which has no divergence term here; set learner.kl=0"
    if 0 < learner.dual_clip <= 1 + learner.clip_high:
        return (
            f"learner.dual_clip is {learner.dual_clip:g}, but TRL needs it above 1 + learner.clip_high "
            f"({1 + learner.clip_high:g})"
        )
    return ""


def trl_settings(
    cfg: LearnerConfig, folder: str, *, temperature: float, bf16: bool, cpu: bool
) -> dict[str, Any]:
    """Arguments for `GRPOConfig`. Raises ConfigError for one of `learner.trl.args` that is set here."""
    form, level = FORMS.get(cfg.loss, ("dapo", "token"))
    low, high = cfg.clip_low, cfg.clip_high
    if cfg.loss == "gspo":
        low, high = cfg.gspo_clip_low, cfg.gspo_clip_high
    if cfg.loss == "cispo":
        high = 1 + cfg.clip_high  # TRL's is the ratio itself, as in the paper (arXiv 2506.13585)
    ours: dict[str, Any] = {
        # the shape of a step: one call of training_step is one update, whatever the number of samples
        "per_device_train_batch_size": ROWS, "num_generations": ROWS, "gradient_accumulation_steps": 1,
        "steps_per_generation": 1, "num_iterations": 1, "max_steps": 2**31 - 1, "shuffle_dataset": False,
        # the loss
        "loss_type": form, "importance_sampling_level": level, "epsilon": low, "epsilon_high": high,
        "delta": cfg.dual_clip or None, "beta": cfg.kl, "temperature": temperature, "disable_dropout": True,
        # the optimiser
        "learning_rate": cfg.lr, "lr_scheduler_type": "constant", "adam_beta1": cfg.betas[0],
        "adam_beta2": cfg.betas[1], "weight_decay": cfg.weight_decay, "max_grad_norm": cfg.grad_clip,
        # the machine
        "bf16": bf16, "use_cpu": cpu, "ddp_backend": "gloo" if cpu and world()[1] > 1 else None,
        "gradient_checkpointing": cfg.trl.gradient_checkpointing, "use_liger_kernel": cfg.trl.liger,
        "dataloader_pin_memory": False, "ddp_find_unused_parameters": False,
        # what SPADE does itself
        "output_dir": folder, "report_to": "none", "save_strategy": "no", "eval_strategy": "no",
        "logging_strategy": "steps", "logging_steps": 1, "logging_nan_inf_filter": False,
        "disable_tqdm": True, "remove_unused_columns": False, "use_vllm": False,
    }  # fmt: skip
    if taken := sorted(set(ours) & set(cfg.trl.args)):
        raise ConfigError(
            f"learner.trl.args sets {taken[0]}, which SPADE sets itself; leave it out (docs/scale.md says "
            "which key of learner stands for it)"
        )
    # off: TRL's own default makes the divergence's gradient another one than the compact learner's
    return {"use_bias_correction_kl": False, **ours, **cfg.trl.args}
