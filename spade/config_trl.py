"""The part of the configuration that belongs to TRL's trainer."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from spade.config_base import Count, Section


class TrlConfig(Section):
    """What only `learner.type: trl` has."""

    weights: Literal["float32", "bfloat16"] = "float32"
    """Type of the weights. In `bfloat16` they take half the memory, and steps far smaller than a weight are
    lost; with LoRA only the frozen ones are kept in it."""
    lora_rank: Count = 0
    """Rank of LoRA adapters (peft); 0 = train all weights."""
    lora_alpha: float = Field(default=32.0, gt=0)
    """LoRA's scale: the adapter counts `lora_alpha / lora_rank`."""
    lora_targets: tuple[str, ...] = ()
    """Names of the layers that get adapters, such as `q_proj`; empty = all linear ones but the output's."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, about a third more time."""
    liger: bool = False
    """Liger's Triton kernels for the layers (needs the package liger-kernel and a GPU)."""
    args: dict[str, Any] = Field(default_factory=dict)
    """More arguments of TRL's `GRPOConfig`, such as `{optim: adamw_8bit}` or `{deepspeed: zero3.json}`; what
    SPADE sets itself is refused."""
