"""Weights as files: new ones for engines in other processes, and a checkpoint without its optimiser."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from spade.errors import BackendError
from spade.serving.checkpoint_files import weight_files

SHARD_BYTES = 2 << 30
"""Bytes of one file, so that a large model is never held twice."""
MEMORY_FOLDER = Path("/dev/shm")
"""Files here never reach a disk."""


@contextlib.contextmanager
def model_alone(folder: Path) -> Iterator[Path]:
    """A checkpoint without other safetensors than the model's: itself, or a folder of links that is deleted
    at the end. vLLM loads whatever safetensors it finds, and the folders of a run hold an optimiser's."""
    own = set(weight_files(folder))
    if own == set(folder.glob("*.safetensors")):
        yield folder
        return
    links = Path(tempfile.mkdtemp(prefix="spade-model-"))
    try:
        for path in folder.resolve().iterdir():
            if path.suffix != ".safetensors" or path.name in {p.name for p in own}:
                (links / path.name).symlink_to(path)
        yield links
    finally:
        shutil.rmtree(links, ignore_errors=True)


@contextlib.contextmanager
def written(named: Iterable[tuple[str, Any]], folder: str | None, dtype: str) -> Iterator[Path]:
    """A new folder with the tensors as safetensors of type `dtype`, below `folder` if one is given; deleted
    at the end. Raises `BackendError` when they cannot be written."""
    from safetensors import SafetensorError

    root: Path | None = None
    try:
        try:
            root = Path(tempfile.mkdtemp(prefix="spade-weights-", dir=folder or _scratch()))
            _write(named, root, getattr(torch, dtype))
        except (OSError, SafetensorError) as err:
            raise BackendError(
                f"New weights cannot be written to {root or folder} ({err}); set serving.vllm.weights_dir "
                "to a folder with room."
            ) from err
        yield root
    finally:
        if root is not None:
            shutil.rmtree(root, ignore_errors=True)


def _scratch() -> str | None:
    return str(MEMORY_FOLDER) if os.access(MEMORY_FOLDER, os.W_OK) else None


def _write(named: Iterable[tuple[str, Any]], root: Path, dtype: torch.dtype) -> None:
    from safetensors.torch import save_file

    shard: dict[str, torch.Tensor] = {}
    size = count = 0
    for name, tensor in named:
        shard[name] = (
            tensor.detach().to("cpu", dtype if tensor.is_floating_point() else tensor.dtype).contiguous()
        )
        size += shard[name].numel() * shard[name].element_size()
        if size >= SHARD_BYTES:
            save_file(_unshared(shard), root / f"model-{count:05d}.safetensors")
            shard, size, count = {}, 0, count + 1
    if shard:
        save_file(_unshared(shard), root / f"model-{count:05d}.safetensors")


def _unshared(shard: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tied tensors as copies: the format has no two names for one memory."""
    seen: set[int] = set()
    out = {}
    for name, tensor in shard.items():
        at = tensor.untyped_storage().data_ptr()
        out[name] = tensor.clone() if at in seen else tensor
        seen.add(at)
    return out
