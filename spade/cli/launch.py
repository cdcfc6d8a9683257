"""`spade train --launch N`: the same command in N processes of this machine.

The first process is the run; the others share its learner's work (`spade.train.follow`). For several nodes,
start the command with torchrun or accelerate instead: they set the same variables.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from spade.errors import InputError

GRACE = 30.0
"""Seconds the others have to end by themselves once one process has."""
POLL = 0.1


def launch(command: str, processes: int) -> int:
    """Run `command` (as in the run record, without what launched it) in `processes` processes.

    Returns the exit code of the first, or that of another one which failed. Signals go to the first alone: it
    stops after its step and lets the others go.
    """
    if "RANK" in os.environ:
        raise InputError(
            "--launch inside a launcher (RANK is set); leave out --launch, or start without torchrun"
        )
    argv = [sys.executable, "-m", "spade.cli.main", *without_launch(shlex.split(command)[1:])]
    port = _free_port()
    children = [subprocess.Popen(argv, env=_environment(rank, processes, port), start_new_session=True,
                                 stdout=None if rank == 0 else subprocess.DEVNULL)
                for rank in range(processes)]  # fmt: skip

    def forward(number: int, frame: FrameType | None) -> None:
        children[0].send_signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return _wait(children)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _end(children)


def without_launch(argv: Sequence[str]) -> list[str]:
    """The arguments without `--launch N` or `--launch=N`."""
    out: list[str] = []
    skip = False
    for word in argv:
        if not skip and word != "--launch" and not word.startswith("--launch="):
            out.append(word)
        skip = word == "--launch"
    return out


def _environment(rank: int, size: int, port: int) -> dict[str, str]:
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    found = {**os.environ, **{name: str(value) for name, value in numbers.items()}}
    found |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    found.setdefault("OMP_NUM_THREADS", "1")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _wait(children: Sequence[subprocess.Popen[bytes]]) -> int:
    """Until the first process has ended, or another one failed."""
    while True:
        codes = [child.poll() for child in children]
        failed = next((code for code in codes[1:] if code), None)
        if codes[0] is None and failed is None:
            time.sleep(POLL)
            continue
        if codes[0] is None:
            # the first notices by itself when it next needs the one that is gone
            try:
                codes[0] = children[0].wait(GRACE)
            except subprocess.TimeoutExpired:
                children[0].terminate()
        code = codes[0] if codes[0] else failed
        return 0 if code is None else code if code > 0 else 128 - code


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for all, and end those that do not end by themselves."""
    deadline = time.monotonic() + GRACE
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
