"""What SPADE builds on inside TRL, and a check that the installed release still has it.

TRL's trainer has no public place to hand over finished samples. `SpadeTrainer` therefore overrides methods
whose names are private and fills the dictionary that its loss reads. TRL may change either at any time, so
both are written down here and compared with the source that is installed before a trainer is made.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import re
from typing import Any

from spade.errors import InputError

RANGE = "trl>=1.16,<1.17"
"""The releases that are known to have the seam."""

METHODS: dict[str, tuple[str, ...]] = {
    "_generate_and_score_completions": ("self", "inputs"),
    "_prepare_inputs": ("self", "generation_batch"),
    "training_step": ("self", "model", "inputs", "num_items_in_batch"),
    "_compute_loss": ("self", "model", "inputs"),
    "_get_per_token_logps_and_entropies": (
        "self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy",
    ),
    "log": ("self", "logs"),
}  # fmt: skip
"""Overridden or called methods with the arguments they begin with."""

KEYS = frozenset(
    [
        "prompt_ids",
        "prompt_mask",
        "completion_ids",
        "completion_mask",
        "advantages",
        "num_items_in_batch",
        "tool_mask",
        "old_per_token_logps",
        "ref_per_token_logps",
        "sampling_per_token_logps",
        "importance_sampling_ratio",
    ]
)
"""What the loss reads of a batch, images aside."""

IMAGE_KEYS = frozenset(
    [
        "pixel_values",
        "image_grid_thw",
        "num_images",
        "pixel_attention_mask",
        "spatial_shapes",
        "num_tiles",
        "image_sizes",
        "token_type_ids",
        "mm_token_type_ids",
        "image_position_ids",
    ]
)

ATTRIBUTES = ("current_gradient_accumulation_steps", "steps_per_generation", "num_processes", "loss_type")
"""What the loss divides by, or branches on."""

_READ = re.compile(r"""inputs(?:\[|\.get\()\s*["'](\w+)["']|["'](\w+)["']\s+(?:not\s+)?in\s+inputs""")


def check_seam(trainer: type[Any] | None = None) -> None:
    """Raise InputError in one sentence when TRL is missing or no longer has what SPADE builds on.

    `trainer` is the class to look at, TRL's GRPOTrainer unless said otherwise (tests).
    """
    if trainer is None:
        try:
            from trl import GRPOTrainer

            trainer = GRPOTrainer
        except ModuleNotFoundError as error:
            raise InputError(
                f"learner.type is trl, but the module '{error.name}' is not installed; run pip install "
                "'spade-rl[trl]', or use learner.type=compact"
            ) from error
    assert trainer is not None
    if moved := _moved(trainer):
        raise InputError(
            f"TRL {_version()} is not the one SPADE was written for ({moved}); run pip install '{RANGE}'"
        )


def _moved(trainer: type[Any]) -> str:
    """What is different, in a few words; "" if nothing is."""
    for name, arguments in METHODS.items():
        method = getattr(trainer, name, None)
        if method is None:
            return f"{trainer.__name__} has no method {name}"
        found = tuple(inspect.signature(method).parameters)[: len(arguments)]
        if found != arguments:
            return f"{name} takes {', '.join(found)}"
    source = inspect.getsource(trainer._compute_loss)
    keys = {one or other for one, other in _READ.findall(source)}
    if unknown := sorted(keys - KEYS - IMAGE_KEYS):
        return f"its loss reads the new key '{unknown[0]}'"
    if gone := sorted(KEYS - keys):
        return f"its loss no longer reads '{gone[0]}'"
    if lost := [name for name in ATTRIBUTES if name not in source]:
        return f"its loss no longer looks at {lost[0]}"
    return ""


def _version() -> str:
    try:
        return importlib.metadata.version("trl")
    except importlib.metadata.PackageNotFoundError:
        return "(unknown version)"
