"""The procedural baseline: tasks written by generators, with a difficulty that follows the Agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spade.config import Config
from spade.errors import FaultKind
from spade.rng import child_rng
from spade.train.source import World, agent_credits, faults, returns, running_baselines
from spade.types import Credit, EnvProgram, Group
from spade_baselines.curriculum import Curriculum
from spade_baselines.families import Family, families

WON = 1.0
"""Return from which on a play counts as won."""


class ProceduralSource:
    """New tasks in every step, families in shuffled rounds. See `spade.train.source.EnvSource`."""

    def __init__(self, world: World) -> None:
        self.world, self.cfg = world, world.cfg
        own = world.cfg.procedural
        self.families: list[Family] = families(own.families, own.rlve)
        self.curriculum = Curriculum(own.window, own.attempts, own.accuracy, own.max_level)
        self.baselines = running_baselines(world.cfg)
        self._dealt = 0
        self._made: dict[str, tuple[Family, int]] = {}
        self._broken = 0

    @staticmethod
    def check(cfg: Config) -> None:
        """Raise ConfigError for an unknown family, InputError for a checkout that is none."""
        families(cfg.procedural.families, cfg.procedural.rlve)

    async def begin_step(self, step: int) -> list[tuple[EnvProgram, bool]]:
        """`play.programs` new tasks, without hints."""
        chosen: dict[str, EnvProgram] = {}
        self._made = {}
        for slot in range(self.cfg.play.programs):
            family = self._next_family()
            rng = child_rng(self.cfg.seed, "procedural", step, slot)
            level = self.curriculum.draw(family.name, rng)
            program = family.make(level, rng)
            if program.id not in chosen:
                chosen[program.id] = program
                self._made[program.id] = (family, level)
        return [(program, False) for program in chosen.values()]

    def _next_family(self) -> Family:
        """Every family once, in an order of its own for each round."""
        turn, place = divmod(self._dealt, len(self.families))
        self._dealt += 1
        order = list(range(len(self.families)))
        child_rng(self.cfg.seed, "families", turn).shuffle(order)
        return self.families[order[place]]

    async def observe(self, step: int, groups: Sequence[Group]) -> list[Credit]:
        """Move the windows; credits for the Agent alone."""
        for group in groups:
            family, level = self._made[group.program.id]
            won = [value >= WON for value in returns(group.plain)]
            self.curriculum.observe(family.name, level, won, family.top)
            self._broken += any(f.kind is FaultKind.PROGRAM for f in faults(group.plain))
        return agent_credits(step, groups, self.cfg, self.baselines)

    def flush(self) -> list[Credit]:
        """Nothing ever waits."""
        return []

    @property
    def owes_play(self) -> bool:
        """Never."""
        return False

    def metrics(self) -> dict[str, float]:
        """Mean and highest level reached over families, and programs that broke so far."""
        highs = [held.high for held in self.curriculum.windows.values()]
        levels = [level for _, level in self._made.values()]
        return {
            "procedural/families": float(len(self.families)),
            "procedural/level": sum(levels) / max(1, len(levels)),
            "procedural/high_mean": sum(highs) / max(1, len(highs)),
            "procedural/high_max": float(max(highs, default=0)),
            "procedural/broken": float(self._broken),
        }

    def state_dict(self) -> dict[str, Any]:
        """Windows, position, running baselines."""
        return {
            "dealt": self._dealt,
            "broken": self._broken,
            "windows": self.curriculum.state_dict(),
            "baselines": self.baselines.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._dealt, self._broken = int(state["dealt"]), int(state["broken"])
        self.curriculum.load_state_dict(state["windows"])
        self.baselines.load_state_dict(state["baselines"])
