"""Start `parallel_child.py` alone or twice, and read what the processes ended with."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("parallel_child.py")


def run_children(
    job: str, out: Path, model: Path, size: int, timeout: float = 300.0, nodes: bool = False
) -> None:
    """Run a job in `size` processes over gloo; fails with the output of one that failed. With `nodes` each is
    told that it is the only one of its node."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    root = str(CHILD.parent.parent.parent)
    started = []
    for rank in range(size):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root, "HF_HUB_OFFLINE": "1"}
        local = {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1} if nodes else {}
        numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, **local}
        env |= {name: str(value) for name, value in numbers.items()}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        argv = [sys.executable, str(CHILD), job, str(out), str(model)]
        started.append(subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True))
    try:
        for child in started:
            _, err = child.communicate(timeout=timeout)
            assert child.returncode == 0, err[-3000:]
    finally:
        for child in started:
            child.kill()


def weights(out: Path, name: str, rank: int = 0) -> dict[str, Any]:
    """Tensors a process wrote under a name."""
    from safetensors.torch import load_file

    found: dict[str, Any] = load_file(out / f"rank-{rank}" / f"{name}.safetensors")
    return found


def numbers(out: Path, name: str, rank: int = 0) -> Any:
    """Numbers a process wrote under a name."""
    return json.loads((out / f"rank-{rank}" / f"{name}.json").read_text())


def furthest(a: dict[str, Any], b: dict[str, Any]) -> float:
    """The largest absolute difference of any two entries."""
    assert a.keys() == b.keys()
    return max(float((a[n] - b[n]).abs().max()) for n in a)
