"""A scripted training run in a process of its own, to be killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from spade.config import Config
from tests.train.scripted_world import small_config, train


def kill_config(out: Path, staleness: int = 0) -> Config:
    """A run with everything that has state: memory, window, archive, delayed sets, running means."""
    return small_config(
        out,
        design__designs=3,
        design__every=2,
        design__delay=3,
        play__plays=3,
        play__programs=2,
        learner__advantage="ema",
        reward__type="learning_potential",
        train__steps=16,
        train__checkpoint_every=1,
        train__keep=2,
        train__staleness=staleness,
    )


def run(out: str, log: str, staleness: int, syncs: int) -> None:
    """Train in `out` (resuming it). With `syncs` n > 0 the process kills itself before it flushes its
    n-th file of a checkpoint, which is in the middle of writing one."""
    for fd in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), fd)
    if syncs:
        _die_at(syncs)
    train(kill_config(Path(out), staleness))


def _die_at(syncs: int) -> None:
    import spade.learn.checkpoint as checkpoint

    original, left = checkpoint._sync, [syncs]

    def sync(path: Any) -> None:
        left[0] -= 1
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        original(path)

    checkpoint._sync = sync
