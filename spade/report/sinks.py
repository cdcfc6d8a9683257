"""Tracking sinks: a run's metric rows on their way to somebody else's dashboard.

    Sink             what a dashboard's adapter offers: `log(row)` and `close()`
    SinkRun          what an adapter is told of the run when it is opened
    Sinks            all sinks of a run: hands out rows, survives whatever a sink does, and names what failed

Every sink lives in a thread of its own, in which it is opened, fed and closed: a slow or hanging one neither
delays a step nor keeps a run from ending. What goes wrong is counted, and told once when it happens and once
at the end.
"""

from __future__ import annotations

import contextlib
import math
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

QUEUED = 256
"""Rows that may wait for one sink; more are dropped and counted."""
PATIENCE = 20
"""Rows in a row that may fail before a sink is given up."""
CLOSING = 30.0
"""Seconds that all sinks together get to finish when the run ends."""


class Sink(Protocol):
    """Somewhere that metric rows go. Both methods may raise: the run goes on."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Take one row of `metrics.jsonl`: `step` counts from 1, other values are numbers, None or JSON."""
        ...

    def close(self) -> None:
        """Write what is pending. May be called twice."""
        ...


@dataclass(frozen=True, slots=True)
class SinkRun:
    """What a sink is told of a run. `id` is the same after a resume."""

    id: str
    name: str
    folder: Path
    project: str = "spade"
    config: Mapping[str, Any] = field(default_factory=dict)
    resumed: bool = False


SinkMaker = Callable[[SinkRun], Sink]


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a row without `step`: what every dashboard takes."""
    return {
        key: float(value)
        for key, value in row.items()
        if key != "step" and isinstance(value, int | float) and math.isfinite(value)
    }


class _Lane:
    """One sink in its thread."""

    def __init__(self, name: str, make: SinkMaker, run: SinkRun) -> None:
        self.name, self._make, self._run = name, make, run
        self._rows: queue.Queue[Mapping[str, Any] | None] = queue.Queue(QUEUED)
        self.failed = 0
        self.first = ""
        self.given_up = False
        self._thread = threading.Thread(target=self._work, name=f"sink-{name}", daemon=True)
        self._thread.start()

    def put(self, row: Mapping[str, Any]) -> None:
        """Queue a row; a sink that is given up gets no more."""
        if self.given_up:
            self.failed += 1
            return
        try:
            self._rows.put_nowait(row)
        except queue.Full:
            self._failure(f"{QUEUED} rows are waiting for it")

    def close(self, deadline: float) -> None:
        """Let the thread finish until `deadline` (of `time.monotonic`), then leave it."""
        left = max(0.1, deadline - time.monotonic())
        with contextlib.suppress(queue.Full):
            self._rows.put(None, timeout=left)
        self._thread.join(max(0.1, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._failure("it had not finished when the run ended")

    def _work(self) -> None:
        try:
            sink = self._make(self._run)
        except Exception as error:  # whatever a dashboard's library raises must not reach the run
            self.given_up = True
            self._failure(f"it could not be opened: {_words(error)}")
            return
        in_a_row = 0
        while (row := self._rows.get()) is not None and not self.given_up:
            try:
                sink.log(row)
                in_a_row = 0
            except Exception as error:
                self._failure(_words(error))
                in_a_row += 1
                self.given_up = in_a_row >= PATIENCE
        try:
            sink.close()
        except Exception as error:
            self._failure(f"it could not be closed: {_words(error)}")

    def _failure(self, words: str) -> None:
        self.failed += 1
        if not self.first:
            self.first = words
            print(f"sink {self.name}: {words}; the run goes on.", file=sys.stderr)


def _words(error: Exception) -> str:
    """Kind and first line of an error."""
    return f"{type(error).__name__} {(str(error).strip() or 'without words').splitlines()[0][:200]}"


class Sinks:
    """The sinks of a run; use it as a context manager. Without any it does nothing."""

    def __init__(self, makers: Mapping[str, SinkMaker], run: SinkRun, *, closing: float = CLOSING) -> None:
        self._closing = closing
        self._closed: list[_Lane] = []
        self._lanes = [_Lane(name, make, run) for name, make in makers.items()]

    def __enter__(self) -> Sinks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def log(self, row: Mapping[str, Any]) -> None:
        """Hand a copy of a row to every sink."""
        for lane in self._lanes:
            lane.put(dict(row))

    def close(self) -> None:
        """Finish all sinks, waiting `CLOSING` seconds at most. May be called twice."""
        deadline = time.monotonic() + self._closing
        while self._lanes:
            lane = self._lanes.pop(0)
            lane.close(deadline)
            self._closed.append(lane)

    def failures(self) -> Iterator[tuple[str, int, str]]:
        """(name, how often it failed, what happened first) of every sink that failed."""
        for lane in (*self._closed, *self._lanes):
            if lane.failed:
                yield lane.name, lane.failed, lane.first

    def summary(self) -> dict[str, str]:
        """`{"sinks": one sentence}` when any sink failed, else nothing."""
        told = [f"{name} failed {count} times (first: {why})" for name, count, why in self.failures()]
        return {"sinks": "; ".join(told)} if told else {}
