"""Work with a deadline keeps what is finished, and the watchdog says where the rest is stuck."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spade.config import Config
from spade.deadlines import all_in_time
from spade.envs.battery import STAGES
from spade.errors import BackendError
from spade.serving.policy import Completion
from spade.serving.scripted import ScriptedPolicy
from spade.train.watch import STALLS, STEP, Watchdog, limits_of, stacks
from tests.train.scripted_world import World, rows, small_config, train


async def never() -> str:
    await asyncio.Event().wait()
    return "never"


async def soon(value: str) -> str:
    await asyncio.sleep(0)
    return value


async def test_what_is_finished_is_kept_and_the_rest_is_cancelled() -> None:
    ended: list[str] = []

    async def noting() -> str:
        try:
            return await never()
        finally:
            ended.append("cancelled")

    assert await all_in_time([soon("a"), noting(), soon("b")], 0.1) == ["a", None, "b"]
    assert ended == ["cancelled"]
    assert await all_in_time([], 1.0) == []
    assert await all_in_time([never()], -3.0) == [None]


async def test_the_first_error_ends_the_others() -> None:
    async def broken() -> str:
        raise ValueError("broken")

    began = time.monotonic()
    with pytest.raises(ValueError, match="broken"):
        await all_in_time([never(), broken()], 600.0)
    assert time.monotonic() - began < 60


def test_every_stage_has_a_deadline_and_names_the_key_that_sets_it() -> None:
    cfg = Config.model_validate({"play": {"seconds": 7}, "learner": {"seconds": 8}})
    limits = limits_of(cfg)
    assert limits["play"] == (7, "play.seconds") and limits["learn"] == (8, "learner.seconds")
    assert {"design", "hints"} <= set(limits)
    for _, keys in limits.values():
        for key in keys.split(" and "):
            section, field = key.split(".")
            assert getattr(getattr(cfg, section), field) > 0


async def test_a_late_stage_leaves_the_stacks_of_threads_and_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asleep = threading.Event()

    def wait_in_a_thread() -> None:
        asleep.wait(60)

    threading.Thread(target=wait_in_a_thread, name="busy-thread", daemon=True).start()
    with Watchdog(tmp_path, {"play": (0.05, "play.seconds")}, (60, "train.stage_seconds")) as watch:
        STEP.set(7)
        task = asyncio.create_task(never(), name="stalled-play")
        with watch.stage("play"), watch.stage("lens"):
            file = tmp_path / STALLS / "step-000007-play.txt"
            while not (file.exists() and "task stalled-play" in file.read_text()):
                await asyncio.sleep(0.01)
        task.cancel()
    asleep.set()
    text = file.read_text()
    assert text.startswith("step 7: play has taken 0.05 s, its deadline (play.seconds)")
    assert "thread busy-thread" in text and "wait_in_a_thread" in text
    assert "await asyncio.Event().wait()" in text and "in wait" in text, "the stack of a task is whole"
    assert f"the stacks of all threads and tasks are in {file}" in capsys.readouterr().err
    assert not watch.stuck


async def test_a_stage_that_does_not_end_ends_the_run_with_one_sentence(tmp_path: Path) -> None:
    async def run() -> None:
        limits = {"hints": (0.05, "hints.phase_seconds")}
        with Watchdog(tmp_path, limits, (60, "x"), grace=0.1) as watch, watch.stage("hints"):
            await never()

    said = r"hints has taken 0.05 s, its deadline \(hints.phase_seconds\), and does not end"
    with pytest.raises(BackendError, match=said):
        await asyncio.create_task(run())


def test_a_call_that_never_returns_ends_the_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The loop is blocked, so cancelling cannot help; here the process's end only releases the call."""
    left: list[int] = []
    released = threading.Event()

    def leave(code: int) -> None:
        left.append(code)
        released.set()

    async def run() -> None:
        limits = {"learn": (0.05, "learner.seconds")}
        with Watchdog(tmp_path, limits, (60, "x"), grace=0.1, leave=leave) as watch, watch.stage("learn"):
            assert released.wait(60)

    with pytest.raises(BackendError, match="and does not end"):
        asyncio.run(run())
    assert left == [1]
    assert "learn has taken 0.05 s" in capsys.readouterr().err


async def test_a_cancelled_run_that_is_not_stuck_stays_cancelled(tmp_path: Path) -> None:
    async def run() -> None:
        with Watchdog(tmp_path, {}, (60, "x")) as watch, watch.stage("play"):
            await never()

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_stacks_name_every_task() -> None:
    task = asyncio.create_task(soon("x"), name="a-task-of-mine")
    text = stacks(asyncio.get_running_loop())
    await task
    assert "a-task-of-mine" in text and "thread MainThread" in text


def quick_config(out: Path, **changes: Any) -> Config:
    """A validator that only loads programs."""
    return small_config(out, validator__stages={**dict.fromkeys(STAGES, False), "load": True}, **changes)


class Stalling(ScriptedPolicy):
    """Answers side by side like an endpoint, and never where `stalls(prompt text)`."""

    lockstep = False
    stalls: Any = staticmethod(lambda prompt: False)

    async def generate(
        self, prompts: Sequence[Sequence[int]], params: Any, n: int = 1
    ) -> list[list[Completion]]:
        if any(self.stalls(self.renderer.prompt_text(p)) for p in prompts):
            await never()
        return await super().generate(prompts, params, n)


class StallingWorld(World):
    """A world whose engine never answers in one play of the second step."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = Stalling.from_function(self.reply)
        self.policy.stalls = self.stalls  # type: ignore[attr-defined]
        self.stalled = 0

    def stalls(self, prompt: str) -> bool:
        if self.policy.version != 1 or "boxed{" not in prompt or self.stalled:
            return False
        self.stalled += 1
        return True


def test_a_play_that_stalls_costs_no_finished_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cfg = quick_config(tmp_path / "a", train__steps=3, play__seconds=6.0, train__max_fault_share=1.0)
    world = StallingWorld()
    summary, folder, _ = train(cfg, world)
    assert summary["steps"] == 3 and world.stalled == 1
    played = [e for e in rows(folder, "episodes.jsonl") if e["step"] == 2]
    lost = [e for e in played if "fault" in e]  # one, or more where the machine is very slow
    assert lost and {e["fault"].partition(": the")[0] for e in lost} == {"infrastructure: deadline"}
    assert all(e["value"] is None for e in lost)
    metrics = rows(folder, "metrics.jsonl")[1]
    assert (metrics["plays"], metrics["faults/infrastructure"]) == (len(played), len(lost))
    assert len(lost) < len(played) and all(e["value"] is not None for e in played if e not in lost)
    dump = folder.path / STALLS / "step-000002-play.txt"
    text = dump.read_text()
    assert text.startswith("step 2: play ") and "await never()" in text, "written before it was given up"
    assert str(dump) in capsys.readouterr().err


def test_too_many_stalled_plays_end_the_run_with_the_finished_ones_on_disk(tmp_path: Path) -> None:
    from spade.errors import SandboxError

    cfg = quick_config(tmp_path / "a", train__steps=3, play__seconds=4.0, train__max_fault_share=0.01)
    said = r"step \d: \d+ of \d+ plays .*deadline: the episode had not ended"
    with pytest.raises(SandboxError, match=said):
        train(cfg, StallingWorld())
    from spade.runs import RunFolder

    there = rows(RunFolder.open(tmp_path / "a"), "episodes.jsonl")
    assert any("fault" in e for e in there)


def test_an_update_that_takes_too_long_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import spade.train.watch as watching
    from tests.train.scripted_world import DigestLearner

    monkeypatch.setattr(watching, "GRACE", 1.0)

    class Slow(DigestLearner):
        def step(self, samples: Any, temperature: Any, lr_scale: float = 1.0) -> dict[str, float]:
            time.sleep(4.0)
            return super().step(samples, temperature, lr_scale)

    cfg = quick_config(tmp_path / "a", train__staleness=1, learner__seconds=0.05)
    with pytest.raises(
        BackendError, match=r"step 1: learn has taken 0.05 s, its deadline \(learner.seconds\)"
    ):
        train(cfg, learner=Slow())
    assert (tmp_path / "a" / STALLS / "step-000001-learn.txt").exists()
