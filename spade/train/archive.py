"""The archive: admitted programs that are played again, the ones at the edge of what the Agent can do first.

A level is drawn with probability proportional to 0.03 + 4 p (1 - p) * gate, where p is the running mean of
its plain returns: levels won half of the time most often, mastered and hopeless ones seldom, games of luck
(gate 0) hardly ever. The constant keeps every level alive, since p goes stale.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from spade.types import EnvProgram, Regret, from_json, to_json

CAPACITY = 240
"""Levels kept; the oldest leaves first. About twenty design steps of the demo."""
MIN_WEIGHT = 0.03
"""Weight of a level that teaches nothing right now."""
MEMORY = 0.5
"""Share of the old running mean kept at each play."""


@dataclass(slots=True)
class Level:
    """One program with its statistics. `plays` 0 means: not yet played, so not drawn."""

    program: EnvProgram
    mean: float = 0.5
    gate: float = 1.0
    plays: int = 0

    @property
    def weight(self) -> float:
        """Unnormalised probability of being drawn."""
        p = min(1.0, max(0.0, self.mean))
        return MIN_WEIGHT + 4.0 * p * (1.0 - p) * self.gate


class Archive:
    """Levels by program id, in order of admission."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.levels: dict[str, Level] = {}

    def __len__(self) -> int:
        return len(self.levels)

    def add(self, program: EnvProgram) -> None:
        """Admit a program; the oldest played level leaves when the archive is full."""
        self.levels[program.id] = Level(program)
        if len(self.levels) > self.capacity:
            oldest = next((i for i, level in self.levels.items() if level.plays), None)
            if oldest is not None:
                del self.levels[oldest]

    def retire(self, program_id: str) -> None:
        """Never play a program again."""
        self.levels.pop(program_id, None)

    def update(
        self,
        program_id: str,
        returns: Sequence[float],
        gate: float | None = None,
        *,
        step: int = 0,
        regret: Regret | None = None,
    ) -> None:
        """Take plain returns of `step`, and the skill gate when it was measured; the regret is not used."""
        level = self.levels.get(program_id)
        if level is None or not returns:
            return
        mean = sum(returns) / len(returns)
        level.mean = mean if not level.plays else MEMORY * level.mean + (1 - MEMORY) * mean
        level.plays += len(returns)
        level.gate = level.gate if gate is None else gate

    def draw(
        self, n: int, rng: random.Random, exclude: Collection[str] = (), *, step: int = 0
    ) -> list[EnvProgram]:
        """`n` different played levels, weighted without replacement (fewer when there are fewer); `step`
        does not matter."""
        keyed = [
            (rng.random() ** (1.0 / level.weight), program_id)
            for program_id, level in self.levels.items()
            if level.plays and program_id not in exclude
        ]
        keyed.sort(reverse=True)
        return [self.levels[program_id].program for _, program_id in keyed[:n]]

    def metrics(self, step: int) -> dict[str, float]:
        """Numbers of the store beyond its size."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """All levels in order."""
        return {"levels": [to_json(level) for level in self.levels.values()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        levels = [from_json(Level, row) for row in state["levels"]]
        self.levels = {level.program.id: level for level in levels}
