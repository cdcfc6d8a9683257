"""SIGKILL at random moments of real processes: what is resumed ends like a run that was never stopped.

Ten kills of a scripted run, two of one whose steps overlap, three of a run with the tiny model;
`SPADE_KILLS=10` makes it ten there, too, and adds ten for a tiny model whose steps overlap. The
moments are drawn from a seed, but where they fall in the work depends on the machine; the result must not. A
run that ends before its kill is begun anew, so that the number of kills never depends on it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.e2e.e2e_cli import PRELOAD, Command, same_results, without_seconds
from tests.train import kill_child
from tests.train.scripted_world import decisions, train

KILLS = 10
STALE_KILLS = int(os.environ.get("SPADE_KILLS", "2"))
TINY_KILLS = int(os.environ.get("SPADE_KILLS", "3"))
PATIENCE = 120.0
SYNCS = 14
"""File flushes of two checkpoints."""


class Running(Protocol):
    """A process that trains."""

    def ended(self) -> bool: ...

    def kill(self) -> None: ...

    def code(self) -> int | None: ...


class Scripted:
    """A scripted run; with `syncs` it kills itself."""

    def __init__(self, out: Path, staleness: int, syncs: int = 0) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*PRELOAD, "tests.train.kill_child"])
        self.log = out.with_suffix(".log")
        self.process = context.Process(
            target=kill_child.run, args=(str(out), str(self.log), staleness, syncs)
        )
        self.process.start()

    def ended(self) -> bool:
        return not self.process.is_alive()

    def kill(self) -> None:
        self.process.kill()

    def code(self) -> int | None:
        self.process.join(PATIENCE)
        return self.process.exitcode


class Tiny:
    """`spade train` with the embedded model."""

    def __init__(self, out: Path, options: list[str]) -> None:
        self.command = Command(out.parent, ["train", "smoke", f"out={out.name}", *options])

    def ended(self) -> bool:
        return not self.command.process.is_alive()

    def kill(self) -> None:
        self.command.signal(signal.SIGKILL)

    def code(self) -> int | None:
        return self.command.done().code


def starts(run: Path) -> int:
    """How often the run was started or resumed; noted before it does anything."""
    events = run / "events.jsonl"
    return events.read_bytes().count(b"\n") if events.exists() else 0


def kill_within(start: Callable[[], Running], run: Path, delay: float) -> bool:
    """Start, wait until the run is opened and `delay` seconds more, kill. False if it had ended by then."""
    before, end = starts(run), time.monotonic() + PATIENCE
    running = start()
    while starts(run) == before and not running.ended():
        assert time.monotonic() < end, "the run does not start"
        time.sleep(0.002)
    time.sleep(delay)
    if running.ended():
        assert running.code() == 0, "the run failed by itself"
        return False
    running.kill()
    return running.code() == -signal.SIGKILL


def kill_often(moment: Callable[[], bool], run: Path, kills: int) -> None:
    """`moment()` kills the run at a random moment; a run that came to its end is begun anew."""
    done = 0
    for _ in range(4 * kills):
        if moment():
            done += 1
        else:
            shutil.rmtree(run)
        if done == kills:
            return
    raise AssertionError(f"only {done} of {kills} kills: the run is too short for this machine")


@pytest.mark.slow
@pytest.mark.parametrize(("staleness", "kills"), [(0, KILLS), (1, STALE_KILLS)])
def test_kills_of_a_scripted_run_change_nothing(tmp_path: Path, staleness: int, kills: int) -> None:
    began = time.perf_counter()
    _, straight, reference = train(kill_child.kill_config(tmp_path / "a", staleness))
    step = (time.perf_counter() - began) / len(straight.rows("metrics.jsonl"))
    run, rng = tmp_path / "b", random.Random(8)
    in_checkpoint = 0

    def moment() -> bool:
        nonlocal in_checkpoint
        if rng.random() < 0.3:
            running = Scripted(run, staleness, rng.randrange(1, SYNCS))
            in_checkpoint += 1
            return running.code() == -signal.SIGKILL
        return kill_within(lambda: Scripted(run, staleness), run, rng.uniform(0, 3 * step))

    kill_often(moment, run, kills)
    assert kills < KILLS or 0 < in_checkpoint < 2 * kills
    _, resumed, learner = train(kill_child.kill_config(run, staleness))
    assert decisions(resumed) == decisions(straight)
    assert learner.digest.tolist() == reference.digest.tolist()
    assert states(run) == states(tmp_path / "a")


def states(run: Path) -> list[Any]:
    """Everything the kept checkpoints hold, wall clock left out."""
    found: list[Any] = [sorted(p.name for p in (run / "checkpoints").iterdir())]
    for path in sorted((run / "checkpoints").glob("step-*/state.json")):
        found.append(without_seconds(json.loads(path.read_text())))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [0] + [1] * ("SPADE_KILLS" in os.environ))
def test_kills_of_a_run_with_the_tiny_model_change_nothing(
    tmp_path: Path, shipped_model: Path, staleness: int
) -> None:
    options = [f"model={shipped_model}", "train.steps=4", "play.programs=4", "seed=3"]
    options.append(f"train.staleness={staleness}")
    began = time.perf_counter()
    assert Tiny(tmp_path / "a", options).code() == 0
    step = (time.perf_counter() - began) / 5
    run, rng = tmp_path / "b", random.Random(8)

    def moment() -> bool:
        return kill_within(lambda: Tiny(run, options), run, rng.uniform(0, 2 * step))

    kill_often(moment, run, TINY_KILLS)
    last = Tiny(run, options)
    assert last.code() == 0, last.command.done().err
    same_results(run, tmp_path / "a")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
