"""What fills a step after the new programs: `play.replay` as a store of levels.

    archive  levels at the edge of what the Agent can do (`spade.train.archive`)
    window   the programs of the present design window again; the archive only keeps them
    plr      prioritised level replay, below

`LevelBuffer` replays programs of high regret by staleness-aware prioritised sampling, after Prioritized Level
Replay (Jiang, Grefenstette and Rocktaeschel 2021, arXiv 2010.03934) with the regret of SPADE as the score:

    P(i) = (1 - rho) * h(i) / sum_j h(j) + rho * (c - c_i) / sum_j (c - c_j),    h(i) = rank(i)^(-1 / beta)

rank 1 is the highest score, c the present step, c_i the step at which level i was played last, beta
`play.replay_temperature`, rho `play.replay_staleness`. The second part keeps scores from going stale.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from spade.config import Config
from spade.learn.gate import gated
from spade.learn.rewards import learnability
from spade.train.archive import Archive, Level
from spade.types import EnvProgram, Regret, from_json, to_json


@dataclass(slots=True)
class Trace:
    """What the buffer knows of a level beyond its statistics."""

    played: int = 0
    """Step at which it was played last."""
    bound: float | None = None
    """Lower bound of the regret of its first play; None: not measured, since it had no usable hint."""
    first: float = 0.0
    """Mean plain return of that first play."""


class LevelBuffer(Archive):
    """Levels with scores. A level leaves by its score, not by its age, and never before it was played."""

    def __init__(self, capacity: int, temperature: float, staleness: float, z: float = 1.0) -> None:
        super().__init__(capacity)
        self.temperature = temperature
        self.staleness = staleness
        self.z = z
        self.traces: dict[str, Trace] = {}

    def add(self, program: EnvProgram) -> None:
        """Admit a program; when the buffer is full, the played level with the lowest score leaves, the older
        one of two."""
        self.levels[program.id] = Level(program)
        self.traces[program.id] = Trace()
        if len(self.levels) > self.capacity:
            played = [i for i, level in self.levels.items() if level.plays]
            if played:
                self.retire(min(played, key=self.score))

    def retire(self, program_id: str) -> None:
        """Never play a program again."""
        super().retire(program_id)
        self.traces.pop(program_id, None)

    def update(
        self,
        program_id: str,
        returns: Sequence[float],
        gate: float | None = None,
        *,
        step: int = 0,
        regret: Regret | None = None,
    ) -> None:
        """Take plain returns of one step, and the gate and the regret when they were measured."""
        super().update(program_id, returns, gate)
        trace = self.traces.get(program_id)
        if trace is None or not returns:
            return
        trace.played = step
        if regret is not None and regret.n > 0:
            error = regret.stderr if math.isfinite(regret.stderr) else 0.0
            trace.bound, trace.first = regret.mean - self.z * error, sum(returns) / len(returns)

    def score(self, program_id: str) -> float:
        """Priority of a level: its regret as far as it is still there, else p (1 - p); both times the gate.

        The hinted arm is played once, when a program is new. What the Agent has won since without a hint is
        taken off: bound - (running mean return - mean return of the first play).
        """
        level, trace = self.levels[program_id], self.traces[program_id]
        if trace.bound is None:
            return gated(learnability(level.mean), level.gate)
        return gated(trace.bound - (level.mean - trace.first), level.gate)

    def probabilities(self, step: int, exclude: Collection[str] = ()) -> dict[str, float]:
        """Probability of each played level to be drawn first at `step`; those excluded are left out."""
        ids = [i for i, level in self.levels.items() if level.plays and i not in exclude]
        if not ids:
            return {}
        # sorted is stable: of equal scores the newer level, which comes last, ranks first
        ranked = sorted(reversed(ids), key=self.score, reverse=True)
        logs = {i: -math.log(rank) / self.temperature for rank, i in enumerate(ranked, 1)}
        weights = {i: math.exp(log) for i, log in logs.items()}
        total = sum(weights.values())
        ages = {i: max(0, step - self.traces[i].played) for i in ids}
        old = sum(ages.values())
        rho = self.staleness if old else 0.0
        return {i: (1 - rho) * weights[i] / total + (rho * ages[i] / old if old else 0.0) for i in ids}

    def draw(
        self, n: int, rng: random.Random, exclude: Collection[str] = (), *, step: int = 0
    ) -> list[EnvProgram]:
        """`n` different played levels, drawn one after the other by their probabilities (fewer when there are
        fewer). A level whose probability is 0 in double precision comes last, by rank."""
        waits = []
        for place, (program_id, p) in enumerate(self.probabilities(step, exclude).items()):
            # the first of exponential clocks with rates p is a draw with probability p, and so on
            clock = -math.log(1.0 - rng.random())
            waits.append((clock / p if p > 0 else math.inf, place, program_id))
        return [self.levels[program_id].program for _, _, program_id in sorted(waits)[:n]]

    def metrics(self, step: int) -> dict[str, float]:
        """Mean steps since a level was played, mean score, and how many levels have a measured regret."""
        played = [i for i, level in self.levels.items() if level.plays]
        if not played:
            return {}
        return {
            "replay/staleness": sum(step - self.traces[i].played for i in played) / len(played),
            "replay/score": sum(map(self.score, played)) / len(played),
            "replay/measured": sum(self.traces[i].bound is not None for i in played) / len(played),
        }

    def state_dict(self) -> dict[str, Any]:
        """All levels in order, with their traces."""
        return {**super().state_dict(), "traces": {i: to_json(t) for i, t in self.traces.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        super().load_state_dict(state)
        self.traces = {i: from_json(Trace, row) for i, row in state["traces"].items()}


def open_archive(cfg: Config) -> Archive:
    """The store of levels that `play.replay` asks for."""
    if cfg.play.replay != "plr":
        return Archive()
    play = cfg.play
    return LevelBuffer(play.replay_capacity, play.replay_temperature, play.replay_staleness, cfg.reward.lcb_z)
