"""What a section of `envs.py` works with: settings, costs, and the figures that come of it."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from machine import tree_seconds

from spade.config import SandboxConfig
from spade.envs.sandbox import Sandbox

FAST, SLOW = "good_guess_multi_turn", "good_grid_walk"
"""The two programs that are stepped: about 1 microsecond a step, and about 100."""
ACTIONS = {FAST: "\\boxed{500}", SLOW: "\\boxed{up}"}
ROUNDS = 5
SEED = 1


@dataclass
class Figure:
    """One measured number. `bar` is what it must reach, from above if `lower` is true."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    lower: bool = False
    note: str = ""

    @property
    def missed(self) -> bool:
        """Whether there is a bar and the value is on the wrong side of it."""
        return self.bar is not None and (self.value > self.bar if self.lower else self.value < self.bar)


@dataclass(frozen=True)
class Setting:
    """What every section gets: programs by name, the sandbox settings, and the share of the work to do."""

    programs: dict[str, str]
    level: str | None = None
    scale: float = 1.0

    def sandbox(self, **changes: Any) -> Awaitable[Sandbox]:
        """A running sandbox; `changes` to the default limits."""
        return Sandbox.start(SandboxConfig(force_level=self.level, max_workers=600, **changes))

    def count(self, full: int, least: int = 1) -> int:
        """How many of something to do."""
        return max(least, round(full * self.scale))


class Cost:
    """CPU time of this process and of all it started, and wall time, summed over the times it is entered."""

    def __init__(self) -> None:
        self.parent = self.children = 0.0
        self.rounds: list[float] = []
        """Wall seconds, one entry each time."""

    def __enter__(self) -> Cost:
        self._children = tree_seconds(os.getpid(), itself=False)
        self._parent, self._start = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.rounds.append(time.perf_counter() - self._start)
        self.parent += time.process_time() - self._parent
        self.children += tree_seconds(os.getpid(), itself=False) - self._children

    def rate(self, count: int) -> float:
        """Operations a second, median of the rounds of `count` each."""
        return count / statistics.median(self.rounds)

    def per(self, count: int) -> str:
        """CPU microseconds per operation, as a note."""
        total = count * len(self.rounds)
        parent, children = self.parent / total * 1e6, self.children / total * 1e6
        return f"CPU parent {parent:,.1f} us, sandbox {children:,.1f} us"
