"""Which device, which number type, how much memory."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from spade.errors import ConfigError

SMALL_MODEL = 20_000_000
"""Below this many parameters `dtype: auto` means float32: it costs little, and log-probs match training."""


def memory_for_caches(device: torch.device) -> int:
    """Bytes the key-value cache may take: half of what the machine or the GPU has."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory // 2)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def is_out_of_memory(err: Exception) -> bool:
    """Whether an exception means that host or GPU memory ran out."""
    text = str(err).lower()
    return (
        isinstance(err, MemoryError | torch.OutOfMemoryError)
        or "out of memory" in text
        or "allocate memory" in text
    )


def pick_device(name: str) -> torch.device:
    """`auto | cpu | cuda` to a device. Raises `ConfigError` when a GPU is asked for and absent."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError("serving.device is cuda but torch sees no GPU; use serving.device=cpu or auto.")
    return torch.device(name)


def pick_dtype(name: str, device: torch.device, parameters: int) -> torch.dtype:
    """`auto | float32 | bfloat16` to a type.

    `auto` is float32 below 20M parameters; above, bfloat16 on a GPU and on CPUs that compute in it.
    """
    if name != "auto":
        return torch.bfloat16 if name == "bfloat16" else torch.float32
    if parameters < SMALL_MODEL or not (device.type == "cuda" or cpu_has_bf16()):
        return torch.float32
    return torch.bfloat16


def cpu_has_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 matrices in hardware (AVX512-BF16 or AMX)."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags
