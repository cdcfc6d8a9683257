"""Designs that wait for their reward, and how the reward is computed once they have been played.

A *set* is everything attempted at one design step. Its rewards are centred per skill over the whole set, so a
set is trained at once, when its last program has been played and its window is over. Sets are part of the
checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from spade.config import Config
from spade.learn.advantages import designer_advantages, designer_scale
from spade.learn.rewards import designer_reward
from spade.types import Credit, Regret, Trajectory, from_json, to_json

Kind = Literal["accepted", "duplicate", "invalid"]

NOT_MEASURED = Regret(0.0, 0.0, 0, 0)


@dataclass(slots=True)
class Attempt:
    """One attempt of the Designer and what its program has shown so far."""

    skill: str
    trajectory: Trajectory
    kind: Kind
    program_id: str = ""
    twin: str = ""
    """The program a duplicate equals."""
    played: bool = False
    broken: bool = False
    """The program faulted while it was played."""
    returns: list[float] = field(default_factory=list)
    """Plain returns of the whole window."""
    regret: Regret | None = None
    gate: float = 1.0

    @property
    def waiting(self) -> bool:
        """Whether the reward still needs a first play."""
        return self.kind == "accepted" and not self.played


@dataclass(slots=True)
class DesignSet:
    """All attempts of one design step."""

    step: int
    attempts: tuple[Attempt, ...]

    def due(self, step: int, delay: int) -> bool:
        """Whether the set is trained at the end of `step`."""
        return step - self.step + 1 >= delay and not any(a.waiting for a in self.attempts)


def set_rewards(made: DesignSet, cfg: Config, known: Mapping[str, float]) -> dict[int, float]:
    """Raw reward by attempt number; attempts that cannot be judged or are not to be trained are left out.

    `known` holds rewards of earlier programs, for duplicates of them. A program without a measured regret
    (its hint was refused) is given the mean regret of its skill in the set: neither rewarded nor punished.
    """
    rewards: dict[int, float] = {}
    earned = dict(known)
    for i, attempt in enumerate(made.attempts):
        if attempt.kind == "invalid":
            if cfg.design.include_invalid:
                rewards[i] = cfg.design.invalid_reward
        elif attempt.kind == "accepted":
            reward = _accepted_reward(attempt, made.attempts, cfg)
            if reward is not None:
                rewards[i] = earned[attempt.program_id] = reward
    for i, attempt in enumerate(made.attempts):
        if attempt.kind == "duplicate":
            rewards[i] = earned.get(attempt.twin, cfg.design.invalid_reward) - cfg.design.duplicate_penalty
    return rewards


def _accepted_reward(attempt: Attempt, attempts: Sequence[Attempt], cfg: Config) -> float | None:
    if attempt.broken:
        return cfg.design.fault_reward
    if not attempt.returns:
        return None  # never played, or every play was lost to infrastructure: nobody pays
    regret = attempt.regret if attempt.regret is not None else _typical_regret(attempt.skill, attempts)
    mean = sum(attempt.returns) / len(attempt.returns)
    return designer_reward(cfg.reward.type, regret=regret, plain_mean=mean, cfg=cfg.reward, gate=attempt.gate)


def _typical_regret(skill: str, attempts: Sequence[Attempt]) -> Regret:
    measured = [(a.skill, a.regret) for a in attempts if a.regret is not None]
    rows = [r for s, r in measured if s == skill] or [r for _, r in measured]
    if not rows:
        return NOT_MEASURED
    errors = [r.stderr for r in rows if np.isfinite(r.stderr)]
    return Regret(
        mean=float(np.mean([r.mean for r in rows])),
        stderr=float(np.mean(errors)) if errors else float("nan"),
        n=min(r.n for r in rows),
        faults=0,
    )


def set_credits(
    made: DesignSet, rewards: Mapping[int, float], agent_samples: int, cfg: Config
) -> list[Credit]:
    """Credits of a due set; none when the Designer is frozen (`learner.designer_weight` 0)."""
    order = sorted(rewards)
    if not order or cfg.learner.designer_weight == 0:
        return []
    skills = [made.attempts[i].skill for i in order]
    values = [rewards[i] for i in order]
    if cfg.learner.designer_scale == "reference":
        scale = designer_scale(agent_samples, len(order), cfg.design.every)
        advantages_N = designer_advantages(values, skills, scale)
    else:
        centred_N = designer_advantages(values, skills)
        advantages_N = centred_N / (centred_N.std() + cfg.learner.std_floor)
    return [
        Credit(
            made.attempts[i].trajectory,
            float(advantage),
            weight=cfg.learner.designer_weight,
            group=f"design/{made.step}/{made.attempts[i].skill}",
        )
        for i, advantage in zip(order, advantages_N, strict=True)
    ]


def set_to_json(made: DesignSet) -> Any:
    """Plain JSON values of a set."""
    return to_json(made)


def set_from_json(value: Any) -> DesignSet:
    """Inverse of `set_to_json`; an unknown standard error is null in files."""
    for row in value["attempts"]:
        if row["regret"] is not None and row["regret"]["stderr"] is None:
            row["regret"] = {**row["regret"], "stderr": float("nan")}
    return from_json(DesignSet, value)
