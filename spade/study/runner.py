"""Run planned cells side by side, one thread each; finished ones are kept and never run twice.

Checkpoints come first, level by level of their chains, since cells share them; then the cells. What was
planned is written to `OUT/plan.json`, which is what the report reads.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from spade.errors import BackendError, InputError
from spade.files import read_json, write_json
from spade.interrupt import StopFlag
from spade.study.cells import run_cell
from spade.study.grid import Experiment, Planned
from spade.study.settings import Cell, Start, finished
from spade.study.stages import ensure, find

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

PRETRAIN_STEP, DIAL_STEP, SFT_STEP = 1.9, 2.5, 0.6
"""Seconds of one step of a stage, in steps of reinforcement learning (measured at the default size)."""

Futures = Iterator["Future[Any]"]


@dataclass(frozen=True)
class Speed:
    """Processor seconds on this machine for the default size, measured once: the clock time on an idle core.
    Other load makes jobs last longer and leaves this as it is."""

    step: float
    """One training step of 32 x 8 responses."""
    probe: float
    """One exact measurement of 64 prompts."""


def measure_speed() -> Speed:
    """Time a few steps and a measurement on an untrained model (about two seconds)."""
    import torch

    from spade.study.families import open_family
    from spade.study.lm import SIZES, TinyLM
    from spade.study.measure import Probes
    from spade.study.rl import RLRun
    from spade.study.settings import RLSettings
    from spade.study.vocabulary import VOCAB

    torch.set_num_threads(1)
    family = open_family("rules")
    model = TinyLM(SIZES["S0"], VOCAB)
    run = RLRun(model, family, RLSettings(reward="random"))
    run.step()
    began = time.process_time()
    for _ in range(3):
        run.step()
    step = (time.process_time() - began) / 3
    probes = Probes.of(family, 16)
    began = time.process_time()
    probes.outputs(model)
    return Speed(step, 4 * (time.process_time() - began))


def cell_seconds(cell: Cell, speed: Speed) -> float:
    """Estimate of one cell's seconds, its checkpoints not counted."""
    from spade.study.ladder import rung_named

    if cell.kind == "estimators":
        return 50 * speed.step
    rollouts = cell.rl.batch * cell.rl.group / 256
    updates = 0.5 + 0.5 * rung_named(cell.rl.algorithm).minibatches ** 0.3
    steps, evals = (cell.rl.steps, cell.evals + 1) if cell.kind == "rl" else (0, 1)
    training, measuring = steps * speed.step * rollouts * updates, evals * speed.probe * cell.probes / 64
    return float(1.0 + size_factor(cell.size) * (training + measuring))


def size_factor(size: str) -> float:
    """How much longer a step takes with a model of this size than with the default one."""
    from spade.study.lm import SIZES

    shape, reference = SIZES[size], SIZES["S0"]
    return float(max(1.0, shape.layers * shape.hidden**1.7 / (reference.layers * reference.hidden**1.7)))


def start_seconds(start: Start, speed: Speed) -> float:
    """Estimate of making the last stage of a start."""
    recipe = start.recipe
    if not start.chain:
        steps = recipe.steps * PRETRAIN_STEP
    elif start.chain[-1].startswith("dial"):
        steps = recipe.dial_steps * DIAL_STEP
    else:
        steps = recipe.sft_steps * SFT_STEP
    return 2.0 + size_factor(start.size) * speed.step * steps


def missing_starts(cells: Iterable[Cell], cache: Path) -> list[Start]:
    """Checkpoints still to be made, parents before children."""
    found: dict[str, Start] = {}
    for cell in cells:
        for start in cell.starts:
            chain: list[Start] = []
            node: Start | None = start
            while node is not None and find(node, cache) is None:
                chain.append(node)
                node = node.parent
            found |= {s.key: s for s in reversed(chain)}
    return sorted(found.values(), key=lambda s: len(s.chain))


def estimates(
    plans: dict[str, list[Planned]], out: Path, speed: Speed, jobs: int
) -> tuple[dict[str, float], float]:
    """Minutes by experiment (cells shared with an earlier one or finished count once, or not at all), and
    minutes for the checkpoints."""
    seen: set[str] = set()
    minutes: dict[str, float] = {}
    for name, planned in plans.items():
        fresh = {p.cell.key: p.cell for p in planned if p.cell.key not in seen}
        seen |= set(fresh)
        left = [c for key, c in fresh.items() if not finished(out / "cells" / key)]
        minutes[name] = sum(cell_seconds(c, speed) for c in left) / 60 / jobs
    cells = [p.cell for planned in plans.values() for p in planned]
    starts = sum(start_seconds(s, speed) for s in missing_starts(cells, out / "stages"))
    return minutes, starts / 60 / jobs


def write_plan(
    out: Path, experiments: dict[str, Experiment], plans: dict[str, list[Planned]], preset: str
) -> None:
    """Add these experiments to `OUT/plan.json`. Raises `InputError` if the folder holds something else."""
    path = out / "plan.json"
    if out.exists() and any(out.iterdir()) and not path.exists():
        raise InputError(f"{out} exists and is not a folder of the study; choose another one with --out.")
    out.mkdir(parents=True, exist_ok=True)
    (out / "stages").mkdir(exist_ok=True)
    (out / "cells").mkdir(exist_ok=True)
    entries = read_json(path, "study plan")["experiments"] if path.exists() else {}
    for name, planned in plans.items():
        rows = [{"key": p.cell.key, "labels": p.labels, "seed": p.seed} for p in planned]
        entries[name] = {"preset": preset, "title": experiments[name].title, "cells": rows}
    write_json(path, {"experiments": entries})


def run_plans(cells: Sequence[Cell], out: Path, jobs: int, stop: StopFlag) -> dict[str, int]:
    """Run what is not finished; returns counts. A cell that crashes is reported at the end, the others run.

    Raises `BackendError` naming the first crash.
    """
    unique = list({c.key: c for c in cells}.values())
    todo = [c for c in unique if not finished(out / "cells" / c.key)]
    failures: list[str] = []
    with Workers(jobs) as workers:
        for depth in range(1 + max((len(s.chain) for c in todo for s in c.starts), default=0)):
            starts = [s for s in missing_starts(todo, out / "stages") if len(s.chain) == depth]
            failures += _all(workers, _make_start, starts, out, f"checkpoints, level {depth}", stop)
        failures += _all(workers, _run_cell, todo, out, "cells", stop)
    done = sum(finished(out / "cells" / c.key) for c in unique)
    if failures and not stop.requested:
        raise BackendError(
            f"{len(failures)} of {len(todo)} jobs failed, the first with: {failures[0]}; {done} cells are "
            "finished and kept, and the same command goes on from there."
        )
    return {"cells": len(unique), "finished": done, "already": len(unique) - len(todo)}


class Workers:
    """`jobs` processes; with one job everything runs in this process."""

    def __init__(self, jobs: int) -> None:
        self.pool: ProcessPoolExecutor | None = None
        if jobs > 1:
            for name in THREADS:
                os.environ[name] = "1"
            self.pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_deaf)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=True, cancel_futures=True)

    def run(self, function: Callable[..., Any], jobs: Sequence[Any], out: Path, stop: StopFlag) -> Futures:
        """`function(job, out)` of every job, as they end; after a stop only those that already run."""
        if self.pool is None:
            for job in jobs:
                if not stop.requested:
                    yield _at_once(function, job, out)
            return
        waiting = [self.pool.submit(function, job, out) for job in jobs]
        for future in as_completed(waiting):
            if stop.requested:
                for other in waiting:
                    other.cancel()
            if not future.cancelled():
                yield future


def _deaf() -> None:
    """Ctrl-C is the parent's business: it lets running cells finish."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _at_once(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(function(*arguments))
    except Exception as error:  # as a worker process would: the caller decides
        future.set_exception(error)
    return future


def _all(
    workers: Workers, function: Callable[..., Any], jobs: Sequence[Any], out: Path, title: str, stop: StopFlag
) -> list[str]:
    """Run every job with a progress bar; returns what went wrong, in words."""
    from spade.report.progress import counter

    failures: list[str] = []
    if not jobs or stop.requested:
        return failures
    with counter(len(jobs), f"study, {title}") as progress:
        for count, future in enumerate(workers.run(function, jobs, out, stop), 1):
            error = future.exception()
            if error is not None:
                failures.append(f"{type(error).__name__}: {error}")
                print(f"study: {failures[-1]}", file=sys.stderr, flush=True)
            progress.update(count)
    return failures


def _make_start(start: Start, out: Path) -> str:
    return str(ensure(start, out / "stages"))


def _run_cell(cell: Cell, out: Path) -> str:
    return str(run_cell(cell, out)["status"])
