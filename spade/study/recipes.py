"""Numbers of the stages before reinforcement learning, by size of model."""

from __future__ import annotations

from dataclasses import dataclass

from spade.errors import InputError


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one size is pretrained, dialled and fine-tuned. All of it enters the hash of a checkpoint."""

    steps: int = 2500
    batch: int = 256
    lr: float = 3e-3
    warmup: int = 100
    end: float = 0.02
    """Learning rate at the end of pretraining, as a share of `lr`."""
    gate: float = 0.995
    """Least exact mass of the right response in every tagged domain; a trunk below it is rejected."""
    dial_steps: int = 320
    dial_batch: int = 128
    """Documents of the retention term."""
    dial_lr: float = 7e-4
    dial_weight: float = 0.2
    """Weight of the error of the log mass, beside the retention cross-entropy."""
    dial_keep: float = 4.0
    """Weight of the divergence (nats a response) from the parent where the model chooses freely."""
    sft_steps: int = 150
    sft_batch: int = 64
    sft_lr: float = 3e-4
    raw_lr: float = 1e-4


RECIPES: dict[str, Recipe] = {
    "XS": Recipe(steps=300, batch=64, lr=5e-3, warmup=30, gate=0.0, dial_steps=12, sft_steps=12),
    "S0": Recipe(),
    "S1": Recipe(steps=2000, lr=2e-3),
    "S2": Recipe(steps=1500, lr=2e-3),
    "S3": Recipe(steps=1500, lr=1e-3, dial_lr=5e-4),
    "G1": Recipe(steps=1500, lr=6e-4, dial_lr=2e-4),
    "G2": Recipe(steps=1500, lr=4e-4, dial_lr=1e-4),
    "G3": Recipe(steps=1500, lr=3e-4, dial_lr=1e-4),
}


def recipe_for(size: str) -> Recipe:
    """The recipe of a size. Raises `InputError` for an unknown one."""
    if size not in RECIPES:
        raise InputError(f"there is no size '{size}'; choose one of {', '.join(RECIPES)}.")
    return RECIPES[size]
