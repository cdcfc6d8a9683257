"""Deadlines of the stages of a run, and what is left behind when one is missed.

Stages that can give up a part of their work (designs, verdicts, hints, plays) do so by themselves at their
deadline, and the run goes on with what is there. Just before, the stacks of all threads and all tasks are
written to a file in the run folder, which is named. A thread of its own watches the stages that the ledger
times, and does the same for those that cannot give up anything. A stage that is still at work `GRACE` seconds
later is stuck: the run ends with an error, and if even that is not possible since some call never returns,
the process does.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from spade.config import Config
from spade.deadlines import LATE
from spade.errors import BackendError

STEP: ContextVar[int] = ContextVar("step", default=1)
"""The step that a task works at, counted from 1, for messages and names of files."""
GRACE = 60.0
"""Seconds after its deadline in which a stage may end by itself; and after that, the run."""
STALLS = "stalls"
"""Folder of the stack dumps below the run folder."""


def limits_of(cfg: Config) -> dict[str, tuple[float, str]]:
    """Deadline in seconds, and the key that sets it, by the ledger's name of a stage."""
    design, validator = cfg.design, cfg.validator
    return {
        "design": (
            design.phase_seconds + validator.seconds, "design.phase_seconds and validator.seconds"
        ),
        "hints": (cfg.hints.phase_seconds, "hints.phase_seconds"),
        "play": (cfg.play.seconds, "play.seconds"),
        "learn": (cfg.learner.seconds, "learner.seconds"),
    }  # fmt: skip


@dataclass(slots=True)
class _Stage:
    step: int
    name: str
    seconds: float
    key: str
    began: float
    dump: Path | None = None

    @property
    def words(self) -> str:
        return f"step {self.step}: {self.name} has taken {self.seconds:g} s, its deadline ({self.key})"


class Watchdog:
    """Watches the stages of one run. Open it with `with` in the task that is to be ended when one is stuck.

    `limits` are seconds and the key they come from by stage, `other` those of all other stages. `grace` and
    `leave` are for tests.
    """

    def __init__(
        self,
        folder: Path,
        limits: Mapping[str, tuple[float, str]],
        other: tuple[float, str],
        *,
        grace: float | None = None,
        leave: Callable[[int], Any] = os._exit,
    ) -> None:
        self.folder = folder
        self.stuck = ""
        """Why the run was ended, in one sentence; empty while nothing is stuck."""
        self._limits, self._other, self._leave = dict(limits), other, leave
        self._grace = GRACE if grace is None else grace
        self._stages: dict[int, _Stage] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._leave_at: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._thread = threading.Thread(target=self._watch, name="spade-watchdog", daemon=True)

    @classmethod
    def of(cls, cfg: Config, folder: Path) -> Watchdog:
        """The watchdog of a training run."""
        return cls(folder, limits_of(cfg), (cfg.train.stage_seconds, "train.stage_seconds"))

    def __enter__(self) -> Watchdog:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        if self.stuck and (error is None or isinstance(error, asyncio.CancelledError)):
            raise BackendError(self.stuck) from None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A stage of that name is at work inside the block. Stages may overlap and nest."""
        seconds, key = self._limits.get(name, self._other)
        stage = _Stage(STEP.get(), name, seconds, key, time.monotonic())
        with self._changed:
            self._stages[id(stage)] = stage
            self._changed.notify()
        before = LATE.set(lambda key, seconds: self._part_late(stage, key, seconds))
        try:
            yield
        finally:
            LATE.reset(before)
            with self._changed:
                del self._stages[id(stage)]

    def _part_late(self, stage: _Stage, key: str, seconds: float) -> None:
        """A part of a stage is late and about to be given up."""
        with self._changed:
            if stage.dump is None:
                self._dump(stage, f"step {stage.step}: {stage.name} missed {key} ({seconds:g} s)")

    # --- in the thread -----------------------------------------------------------------------------------

    def _watch(self) -> None:
        with self._changed:
            while not self._closed:
                self._changed.wait(self._look(time.monotonic()))

    def _look(self, now: float) -> float | None:
        """Do what is due; returns the seconds until something else is."""
        due = []
        for stage in list(self._stages.values()):
            late = now - stage.began - stage.seconds
            if late >= 0 and stage.dump is None:
                self._dump(stage, stage.words)
            if late >= self._grace and not self.stuck:
                self._end_run(stage, now)
            due.append(-late if late < 0 else self._grace - late)
        if self._leave_at is not None:
            if now >= self._leave_at:
                _say(self.stuck)
                self._leave(1)
                self._leave_at = None
            else:
                due.append(self._leave_at - now)
        waits = [seconds for seconds in due if seconds > 0]
        return min(waits) if waits else None

    def _dump(self, stage: _Stage, words: str) -> None:
        stage.dump = self.folder / STALLS / f"step-{stage.step:06d}-{stage.name}.txt"
        text = f"{words}\n\n{stacks(self._loop)}"
        try:
            stage.dump.parent.mkdir(parents=True, exist_ok=True)
            stage.dump.write_text(text, encoding="utf-8")
        except OSError as error:
            _say(f"{words}; the stacks cannot be written ({error.strerror})")
        else:
            _say(f"{words}; the stacks of all threads and tasks are in {stage.dump}")

    def _end_run(self, stage: _Stage, now: float) -> None:
        self.stuck = (
            f"{stage.words}, and does not end; the stacks of all threads and tasks are in {stage.dump}; the "
            "same command goes on from the last checkpoint"
        )
        self._leave_at = now + self._grace
        if self._loop is not None and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)


def _say(text: str) -> None:
    print(f"train: {text}.", file=sys.stderr, flush=True)


def stacks(loop: asyncio.AbstractEventLoop | None = None) -> str:
    """The stacks of all threads of this process, and of the tasks of `loop` down to what they wait for."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    blocks = [
        f"thread {names.get(number, number)}\n{''.join(traceback.format_stack(frame))}"
        for number, frame in sys._current_frames().items()
    ]
    for task in asyncio.all_tasks(loop) if loop is not None and not loop.is_closed() else ():
        frames = "".join(traceback.format_list(_frames(task.get_coro())))
        blocks.append(f"task {task.get_name()}\n{frames}")
    return "\n".join(blocks)


def _frames(waiting: Any) -> traceback.StackSummary:
    """Where a coroutine, and each one it awaits, has come to: the innermost last."""
    found: list[tuple[FrameType, int]] = []
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None:
            found.append((frame, frame.f_lineno))
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    return traceback.StackSummary.extract(iter(found))
