"""Adaptive difficulty as in RLVE, the paper's second baseline: a window of levels for each family.

both ends of the window start at level 0; a task's level is drawn uniformly from the window
only plays at the highest level count; after `attempts` of them, if `accuracy` of them were won,
the highest level rises by one and the lowest follows at `window - 1` below it
the counts start anew after every such check
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Window:
    """The levels in use of one family, and what counts towards the next."""

    low: int = 0
    high: int = 0
    played: int = 0
    won: int = 0


class Curriculum:
    """One window for each family. `max_level` is the highest level overall, a family may have fewer."""

    def __init__(self, window: int, attempts: int, accuracy: float, max_level: int) -> None:
        self.window, self.attempts, self.accuracy, self.max_level = window, attempts, accuracy, max_level
        self.windows: dict[str, Window] = {}

    def draw(self, family: str, rng: random.Random) -> int:
        """A level for the next task of `family`."""
        held = self.windows.setdefault(family, Window())
        return rng.randint(held.low, held.high)

    def observe(self, family: str, level: int, won: list[bool], top: int) -> None:
        """Take the plays of one task; `top` is the family's own highest level."""
        held = self.windows.setdefault(family, Window())
        if level != held.high:
            return
        held.played += len(won)
        held.won += sum(won)
        if held.played < self.attempts:
            return
        if held.won >= self.accuracy * held.played and held.high < min(top, self.max_level):
            held.high += 1
            held.low = max(held.low, held.high - self.window + 1)
        held.played = held.won = 0

    def state_dict(self) -> dict[str, Any]:
        """All windows."""
        return {family: asdict(held) for family, held in self.windows.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.windows = {family: Window(**row) for family, row in state.items()}
