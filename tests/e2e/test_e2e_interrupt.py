"""A run that is killed, or stopped, and started again ends like one that was not."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e_cli import Command, Spade, Start, rows, same_results


def children(pid: int) -> list[int]:
    """All living descendants of a process."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found += [int(path.parent.name), *children(int(path.parent.name))]
    return found


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def steps(run: Path) -> int:
    return len(rows(run / "metrics.jsonl"))


def saved(run: Path) -> list[str]:
    return sorted(p.name for p in (run / "checkpoints").glob("step-*"))


def kill_when(command: Command, condition: Callable[[], bool]) -> None:
    command.when(condition)
    helpers = children(command.pid)
    command.signal(signal.SIGKILL)
    assert command.done().code == -signal.SIGKILL
    end = time.monotonic() + 10
    while any(map(alive, helpers)):
        assert time.monotonic() < end, f"processes of the sandbox outlive the killed run: {helpers}"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("every", "at"), [(1, 2), (2, 3)], ids=["checkpoint every step", "killed between checkpoints"]
)
def test_sigkill_and_the_same_command_again(
    start: Start, spade: Spade, work: Path, four: list[str], reference: Path, every: int, at: int
) -> None:
    run = work / f"killed-{every}"
    command = [*four, f"train.checkpoint_every={every}", f"out={run.name}"]
    kill_when(start(*command), lambda: steps(run) >= at)
    assert steps(run) < 4 and json.loads((run / "run.json").read_text())["status"] == "running"
    if every == 2:
        assert saved(run) == ["step-000002"] and steps(run) == 3, "step 3 is lost and must be done again"
    for name in ("metrics.jsonl", "episodes.jsonl"):
        with (run / name).open("ab") as file:
            file.write(b'{"step": 3, "torn')
    done = spade(*command)
    assert done.code == 0, done.err
    assert [r["event"] for r in rows(run / "events.jsonl")] == ["start", "resume", "finished"]
    same_results(run, reference)


def test_sigkill_before_the_first_checkpoint(
    start: Start, spade: Spade, work: Path, four: list[str], reference: Path
) -> None:
    run = work / "early"
    command = [*four, "train.checkpoint_every=4", "out=early"]
    kill_when(start(*command), lambda: steps(run) >= 1)
    assert saved(run) == []
    done = spade(*command)
    assert done.code == 0, done.err
    same_results(run, reference)


def test_first_interrupt_stops_after_the_step_and_can_be_resumed(
    start: Start, spade: Spade, work: Path, four: list[str], reference: Path
) -> None:
    run = work / "stopped"
    command = [*four, "train.checkpoint_every=4", "out=stopped"]
    running = start(*command)
    running.when(lambda: steps(run) >= 1)
    running.signal(signal.SIGINT)
    stopped = running.done()
    assert stopped.code == 130, stopped.err
    assert "stopping after the current step" in stopped.err and "Traceback" not in stopped.err
    finished = steps(run)
    assert finished in (1, 2, 3), "at most the step in progress is finished, no other one is begun"
    assert saved(run) == [f"step-{finished:06d}"], "what was done is saved although no checkpoint was due"
    assert json.loads((run / "run.json").read_text())["status"] == "interrupted"
    done = spade(*command, "--resume")
    assert done.code == 0, done.err
    same_results(run, reference)


def test_second_interrupt_stops_at_once(start: Start, work: Path, four: list[str]) -> None:
    run = work / "twice"
    running = start(*four, "out=twice", "play.programs=80", "design.designs=160")
    record = run / "run.json"
    running.when(lambda: record.exists() and bool(json.loads(record.read_text())["sandbox_level"]))
    running.signal(signal.SIGINT)
    running.when(lambda: "stopping after the current step" in running.files[1].read_text())
    running.signal(signal.SIGINT)
    done = running.done()
    assert done.code == 130 and "Traceback" not in done.err, done.err
    assert steps(run) == 0, "the step in progress is given up"
    assert json.loads((run / "run.json").read_text())["status"] == "interrupted"


def test_resume_of_another_config_is_refused(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    work: Path,
    four: list[str],
    reference: Path,
) -> None:
    from spade.cli import main

    monkeypatch.chdir(work)
    before = (reference / "run.json").read_bytes(), os.listdir(reference)
    assert main.main([*four, "out=reference", "play.plays=5", "learner.lr=1e-3", "--resume"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.strip().splitlines()) == 1
    assert "play.plays (6 there, 5 now)" in captured.err and "learner.lr" in captured.err
    assert ((reference / "run.json").read_bytes(), os.listdir(reference)) == before


def test_a_finished_run_is_not_trained_further(spade: Spade, four: list[str], reference: Path) -> None:
    before = (reference / "metrics.jsonl").read_bytes(), saved(reference)
    done = spade(*four, "out=reference")
    assert done.code == 0 and "status: finished" in done.out
    assert ((reference / "metrics.jsonl").read_bytes(), saved(reference)) == before
