"""DeepSpeed ZeRO: whole weights for engines and exports, and DeepSpeed's own checkpoints inside SPADE's.

The engine keeps optimiser and master weights in a form of its own, which only its own checkpoints restore;
they go into a folder of the run's checkpoint, which all processes must see. Collective throughout.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from spade.errors import InputError

FOLDER = "deepspeed"
"""Folder of a checkpoint in which DeepSpeed keeps its own; its files are pickled, as it writes them."""


def named_gathered(model: Any) -> Iterator[tuple[str, Tensor]]:
    """(name, full tensor) of parameters and buffers, one at a time; tied entries are included."""
    import deepspeed

    for name, parameter in model.named_parameters(remove_duplicate=False):
        with deepspeed.zero.GatheredParameters([parameter]):
            yield name, parameter.detach().clone()
    persistent = model.state_dict().keys()
    yield from ((name, buffer.detach()) for name, buffer in model.named_buffers() if name in persistent)


def save_engine(engine: Any, folder: Path) -> None:
    """Write the engine's own checkpoint below `folder`."""
    engine.save_checkpoint(str(folder / FOLDER), tag="engine")


def load_engine(engine: Any, folder: Path) -> None:
    """Go on from `save_engine`. Raises `InputError` when there is nothing to go on from."""
    where = folder / FOLDER
    if not where.is_dir():
        raise InputError(
            f"{folder} holds no checkpoint of DeepSpeed; resume with the learner it was made with."
        )
    loaded, _ = engine.load_checkpoint(str(where), tag="engine")
    if loaded is None:
        raise InputError(f"DeepSpeed cannot go on from {where}; use an earlier checkpoint of the run.")
