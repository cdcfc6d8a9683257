"""What a run ran on: package versions, processor, memory, GPU. Read without importing any heavy package."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from spade import __version__
from spade.errors import InputError

PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "pydantic",
    "gymnasium",
    "trl",
    "vllm",
)
_FLAGS_OF_INTEREST = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
_GPU_NODES = ("/dev/nvidia0", "/dev/dxg", "/dev/kfd")


def versions() -> dict[str, str]:
    """Name -> version of Python, SPADE (with the git commit in a checkout) and the packages that matter."""
    found = {"python": platform.python_version(), "spade": __version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    commit = git_commit()
    return found | ({"git": commit} if commit else {})


def git_commit() -> str | None:
    """Commit of the checkout this package lies in, with `-dirty` when tracked files differ; else None."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    commit = _ask("git", "-C", str(root), "rev-parse", "HEAD")
    if not commit:
        return None
    changed = _ask("git", "-C", str(root), "status", "--porcelain", "--untracked-files=no")
    return f"{commit}-dirty" if changed else commit


def hardware() -> dict[str, Any]:
    """Processor model and relevant flags, usable cores, memory in GiB, GPU names, operating system."""
    info = _cpu_info()
    flags = set(info.get("flags", "").split())
    return {
        "cpu": info.get("model name") or platform.processor() or platform.machine(),
        "cpu_flags": [f for f in _FLAGS_OF_INTEREST if f in flags],
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "gpus": gpus(),
        "system": f"{platform.system()} {platform.release()}",
    }


def gpus() -> list[str]:
    """Names of visible GPUs as nvidia-smi prints them, or a device node when there is no nvidia-smi."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1"):
        return []
    if shutil.which("nvidia-smi"):
        text = _ask("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
        if text:
            return [line.strip() for line in text.splitlines() if line.strip()]
    return [node for node in _GPU_NODES if Path(node).exists()]


def require_device(device: str) -> None:
    """Raise InputError when a GPU is asked for and none is visible: minutes before a model is loaded."""
    if device == "cuda" and not gpus():
        raise InputError(
            "serving.device=cuda was asked for, but no GPU is visible; use serving.device=cpu or auto"
        )


def _cpu_info() -> dict[str, str]:
    """First processor block of /proc/cpuinfo; empty where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def _ask(*command: str) -> str | None:
    """Standard output of a short command, or None when it is absent, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
