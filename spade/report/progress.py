"""Live progress: a rich table on a terminal, plain lines everywhere else.

Progress goes to standard error, so that `--json` output stays one document. The remaining time is
estimated from the recent pace, since steps get slower as episodes get longer.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from spade.report.columns import shown_columns

WINDOW = 20
"""Updates over which the pace is measured."""

ROWS = 12
"""Latest steps shown in the live table."""


def clock(seconds: float) -> str:
    """Seconds as `42s`, `3m05s` or `2h07m`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


class Pace:
    """Remaining seconds from the last `WINDOW` updates."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, float]] = deque(maxlen=WINDOW)

    def mark(self, done: float, now: float | None = None) -> None:
        """Note that `done` units are finished."""
        self._marks.append((time.monotonic() if now is None else now, done))

    def remaining(self, total: float) -> float | None:
        """Seconds until `total`, or None before there is a pace."""
        if len(self._marks) < 2:
            return None
        (t0, d0), (t1, d1) = self._marks[0], self._marks[-1]
        return (total - d1) * (t1 - t0) / (d1 - d0) if d1 > d0 else None


class Progress:
    """Progress of a training run. Use as a context manager and call `row` once a step.

    `total_tokens` is the token budget, if the run has one: the estimate then follows whichever of steps and
    tokens ends first.
    """

    def __init__(
        self, steps: int, title: str, total_tokens: int | None = None, stream: IO[str] | None = None
    ) -> None:
        self.steps, self.title, self.total_tokens = steps, title, total_tokens
        self.stream = stream or sys.stderr
        self._rows: deque[Mapping[str, Any]] = deque(maxlen=ROWS)
        self._by_step, self._by_tokens = Pace(), Pace()
        self._live: Any = None
        self._started = time.monotonic()

    def __enter__(self) -> Progress:
        if self.stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self.stream)
            self._live = Live(console=console, refresh_per_second=4, transient=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def row(self, metrics: Mapping[str, Any]) -> None:
        """Show one finished step; `metrics` is its line of `metrics.jsonl`."""
        now, step = time.monotonic(), float(metrics.get("step") or 0)
        if not self._rows:  # a resumed run does not start at step 0, so only this step's own time counts
            self._by_step.mark(step - 1, now - float(metrics.get("seconds") or 0))
            if step == 1:
                self._by_tokens.mark(0.0, now - float(metrics.get("seconds") or 0))
        self._rows.append(metrics)
        self._by_step.mark(step, now)
        self._by_tokens.mark(float(metrics.get("tokens_total") or 0), now)
        if self._live is not None:
            self._live.update(self._table())
        else:
            print(self.line(metrics), file=self.stream, flush=True)

    def note(self, text: str) -> None:
        """Show a line that is no step."""
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self.stream, flush=True)

    def remaining(self) -> float | None:
        """Estimated seconds to the end, or None."""
        guesses = [self._by_step.remaining(self.steps)]
        if self.total_tokens:  # the steps alone may be many more than the tokens allow
            guesses.append(self._by_tokens.remaining(self.total_tokens))
        known = [max(0.0, g) for g in guesses if g is not None]
        return min(known) if len(known) == len(guesses) else None

    def line(self, metrics: Mapping[str, Any]) -> str:
        """One step as one plain line."""
        cells = [f"{c.head} {c.text(metrics)}" for c in shown_columns([metrics])[1:]]
        left = self.remaining()
        eta = f" · left {clock(left)}" if left is not None else ""
        return f"{self.title}: step {metrics.get('step', '?')}/{self.steps} · " + " · ".join(cells) + eta

    def _table(self) -> Any:
        from rich.table import Table

        left = self.remaining()
        spent = clock(time.monotonic() - self._started)
        caption = f"{spent} spent" + (f", about {clock(left)} left" if left is not None else "")
        table = Table(title=f"{self.title} ({self.steps} steps)", caption=caption)
        shown = shown_columns(list(self._rows))
        for column in shown:
            table.add_column(column.head, justify="right")
        for row in self._rows:
            table.add_row(*(column.text(row) for column in shown))
        return table


class Counter:
    """Progress of something that is counted, such as episodes of an evaluation."""

    def __init__(self, total: int, title: str, stream: IO[str] | None = None, every: float = 5.0) -> None:
        self.total, self.title, self.every = total, title, every
        self.stream = stream or sys.stderr
        self._pace = Pace()
        self._said = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def start(self) -> None:
        """Show the bar on a terminal."""
        self._pace.mark(0)
        if not self.stream.isatty():
            return
        from rich import progress
        from rich.console import Console

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            console=Console(file=self.stream),
        )
        self._bar.start()
        self._task = self._bar.add_task(self.title, total=self.total)

    def update(self, done: int, note: str = "") -> None:
        """`done` of `total` are finished, with `note` beside it. Without a terminal a line appears at most
        every few seconds."""
        self._pace.mark(done)
        now = time.monotonic()
        if self._bar is not None:
            title = f"{self.title} {note}".rstrip()
            self._bar.update(self._task, completed=done, description=title)
        elif now - self._said >= self.every:
            self._said = now
            left = self._pace.remaining(self.total)
            eta = f" · left {clock(left)}" if left is not None else ""
            beside = f" · {note}" if note else ""
            print(f"{self.title}: {done}/{self.total}{beside}{eta}", file=self.stream, flush=True)

    def stop(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


@contextmanager
def counter(total: int, title: str, stream: IO[str] | None = None) -> Iterator[Counter]:
    """A `Counter` that is shown inside the `with` block."""
    shown = Counter(total, title, stream)
    shown.start()
    try:
        yield shown
    finally:
        shown.stop()
