"""Commands in processes of their own that can be killed at a chosen moment.

Processes come from a server that has the slow imports behind it (`multiprocessing`'s fork server), which
saves several seconds a command; one test starts the real interpreter from nothing.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PRELOAD = [
    "spade.train.loop",
    "spade.train.selfplay",
    "spade.learn.trainer",
    "spade.learn.attention",
    "spade.serving.local",
    "spade_evals.runner",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
]
TIMEOUT = 120.0


@dataclass
class Done:
    """A finished command."""

    code: int | None
    out: str
    err: str


Spade = Callable[..., Done]
"""`spade("train", ...)`: a finished command."""


class Command:
    """A running `spade` command in the folder `cwd`."""

    def __init__(self, cwd: Path, argv: list[str]) -> None:
        self.files = [cwd / f"{name}-{time.monotonic_ns()}.txt" for name in ("out", "err")]
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        self.process = context.Process(target=_main, args=(str(cwd), [str(f) for f in self.files], argv))
        self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def when(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; the command must still be running then."""
        end = time.monotonic() + TIMEOUT
        while not condition():
            assert self.process.is_alive(), f"the command ended too early:\n{self.done()}"
            assert time.monotonic() < end, "waited too long"
            time.sleep(0.005)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def done(self) -> Done:
        """Wait for the end."""
        self.process.join(TIMEOUT)
        if self.process.is_alive():
            self.process.kill()
            raise AssertionError("the command does not end")
        out, err = (f.read_text() if f.exists() else "" for f in self.files)
        return Done(self.process.exitcode, out, err)


Start = Callable[..., Command]
"""`start("train", ...)`: a command that was not waited for."""


def _main(cwd: str, files: list[str], argv: list[str]) -> None:
    for fd, name in zip((1, 2), files, strict=True):
        target = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(target, fd)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", 1, closefd=False)
    os.chdir(cwd)
    import torch

    from spade.cli.main import main

    torch.set_num_threads(1)
    code = main(argv)
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)


def rows(path: Path) -> list[dict[str, Any]]:
    """Complete lines of a JSON-lines file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def without_seconds(value: Any) -> Any:
    """A JSON value without its wall-clock fields."""
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if "seconds" not in k}
    if isinstance(value, list):
        return [without_seconds(v) for v in value]
    return value


def results(run: Path) -> dict[str, Any]:
    """Everything of a run that must not depend on how often it was interrupted."""
    last = sorted((run / "checkpoints").glob("step-*"))[-1]
    state = json.loads((last / "state.json").read_text())
    return {
        "last": last.name,
        "metrics": [without_seconds(r) for r in rows(run / "metrics.jsonl")],
        "episodes": rows(run / "episodes.jsonl"),
        "designs": rows(run / "designs.jsonl"),
        "programs": sorted(p.name for p in (run / "pool").iterdir()),
        "weights": (last / "model.safetensors").read_bytes(),
        "trainer": (last / "trainer.safetensors").read_bytes(),
        "state": without_seconds(state),
        "ledger": without_seconds(
            {k: v for k, v in json.loads((run / "run.json").read_text())["ledger"].items()}
        ),
    }


def same_results(run: Path, reference: Path) -> None:
    """Compare part by part, so that a failure names the part."""
    one, other = results(run), results(reference)
    for part in ("metrics", "designs", "episodes", "programs", "ledger", "last", "state"):
        assert one[part] == other[part], part
    for part in ("weights", "trainer"):
        assert one[part] == other[part], f"{part} differ"
