"""Cells of experiment R1: run, resume, record. Files are those of every cell, but for the distributions.

Weights are only kept on request: a real checkpoint is large. They lie in `model/`, a Hugging Face folder.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spade.errors import BackendError, SpadeError
from spade.files import append_lines, atomic_write, file_sha256, read_json, write_json
from spade.interrupt import StopFlag
from spade.study.real import RealCell
from spade.study.real_run import RealRun, RealStep, World
from spade.study.settings import finished
from spade.study.tally import Tally

TRAINED = ("reward", "grad_norm")


@dataclass(frozen=True, slots=True)
class Means:
    """With what a cell is run; none of it enters its hash."""

    device: str = "auto"
    threads: int = 1
    keep: bool = False
    """Write the weights at the end."""


def run_real_cells(
    world: World, cells: Sequence[RealCell], out: Path, means: Means, stop: StopFlag
) -> dict[str, int]:
    """Run what is not finished, one cell after another; returns counts.

    A cell that fails is reported at the end, the others run: then `BackendError` names the first failure.
    """
    from spade.report.progress import counter

    todo = [c for c in cells if not finished(out / "cells" / c.key)]
    failures: list[str] = []
    before = 0
    with counter(sum(c.steps for c in todo), "study, R1, steps") as progress:

        def tick(step: int) -> None:
            progress.update(before + step)

        for cell in todo:
            if stop.requested:
                break
            try:
                run_real_cell(world, cell, out, means, tick)
            except (SpadeError, RuntimeError, OSError) as error:
                failures.append(f"{cell.prior}, {cell.reward}, seed {cell.seed}: {error}")
                print(f"study: {failures[-1]}", file=sys.stderr, flush=True)
            before += cell.steps
            progress.update(before)
    done = sum(finished(out / "cells" / c.key) for c in cells)
    if failures and not stop.requested:
        raise BackendError(
            f"{len(failures)} of {len(todo)} cells of R1 failed, the first with: {failures[0]}; {done} are "
            "finished and kept, and the same command goes on from there."
        )
    return {"cells": len(cells), "finished": done, "already": len(cells) - len(todo)}


def run_real_cell(
    world: World, cell: RealCell, out: Path, means: Means, tick: Callable[[int], None]
) -> dict[str, Any]:
    """Run a cell into `out/cells/KEY` and return its record; a finished one is only read. `tick(step)` is
    called after every step."""
    folder = out / "cells" / cell.key
    if finished(folder):
        return read_json(folder / "cell.json", "cell record")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log.jsonl").unlink(missing_ok=True)
    _write_settings(world, cell, folder, means)
    began = time.time()
    run = RealRun(world, cell, means.device, means.threads)
    try:
        status, log = _train(run, cell, folder, tick)
        if means.keep:
            run.learner.save(folder / "model")
    finally:
        run.close()
    names = ("config.yaml", "log.jsonl")
    record = {
        "key": cell.key, "cell": asdict(cell), "status": status, "seconds": round(time.time() - began, 2),
        "summary": log.outcome(), "sha256": {name: file_sha256(folder / name) for name in names},
    }  # fmt: skip
    write_json(folder / "cell.json", record)
    return record


def _write_settings(world: World, cell: RealCell, folder: Path, means: Means) -> None:
    import yaml

    from spade.machine import hardware, versions

    found = world.targets[cell.prior]
    more = {"target_ids": list(found.ids), "prior_exact": found.prior, "prompt_ids": list(world.prompt_ids)}
    atomic_write(folder / "config.yaml", yaml.safe_dump({**asdict(cell), **more}, sort_keys=False))
    machine = {"versions": versions(), "hardware": hardware(), "threads": means.threads}
    write_json(folder / "env.json", {**machine, "device": means.device})


def _train(run: RealRun, cell: RealCell, folder: Path, tick: Callable[[int], None]) -> tuple[str, _Log]:
    """A row is measured along the responses that the next step trains on; the last gets its own."""
    log, status = _Log(cell, folder), "finished"
    for step in range(1, cell.steps + 1):
        samples = run.sample(step)
        log.measure(step - 1, run, samples)
        stats = run.step(samples, step)
        log.note(step, stats)
        tick(step)
        if not stats.finite:
            status = "diverged"
            break
    log.measure(log.steps, run, run.sample(cell.steps + 1) if log.now is None else ())
    return status, log


class _Log(Tally):
    """Rows of `log.jsonl`, one a step, and the summary made of them.

    What was measured holds until the weights are touched: a run without a signal is measured once.
    """

    def __init__(self, cell: RealCell, folder: Path) -> None:
        super().__init__()
        self.cell, self.folder, self.began = cell, folder, time.time()
        self.now: dict[str, float] | None = None
        self.latest: RealStep | None = None

    def note(self, step: int, stats: RealStep) -> None:
        """Count one training step."""
        self.count(step, stats)
        self.latest = stats
        if stats.moved:
            self.now = None

    def measure(self, step: int, run: RealRun, samples: Sequence[Any]) -> None:
        """Append the figures of the policy after `step` updates."""
        if self.now is None:
            self.now = run.measure(samples)
        row: dict[str, float] = {"step": step, "rollouts": step * self.cell.rollouts, **self.now}
        row |= self.row()
        if self.latest is not None:
            row |= {f"train/{name}": float(getattr(self.latest, name)) for name in TRAINED}
        self.rows.append(row)
        append_lines(self.folder / "log.jsonl", [{**row, "seconds": round(time.time() - self.began, 2)}])

    def outcome(self) -> dict[str, Any]:
        """What tables and verdicts read of a cell."""
        out, budget = self.summary(), self.cell.budget
        return out | {"lambda": out["p0"] * budget, "budget": budget, "target": self.cell.target}
