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
from spade.design.attempts import accepted, twin_id
from spade.learn.advantages import scaled_advantages
from spade.learn.gate import gated
from spade.learn.potential import SkillMeans
from spade.learn.regret import window_regret
from spade.learn.rewards import Evidence, raw_reward, shaped
from spade.train.roles import trains_designs
from spade.types import Credit, Design, Regret, Trajectory, from_json, to_json

Kind = Literal["accepted", "duplicate", "invalid", "repaired"]
"""`repaired`: rejected, but a repair turn brought a program that is played."""

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
    offsets: list[int] = field(default_factory=list)
    """Step of the window in which each of the returns was played; 0 is the design step."""
    hinted: list[float] = field(default_factory=list)
    """Hinted returns."""
    regret: Regret | None = None
    """Paired regret of the first play."""
    gate: float = 1.0
    novelty: float | None = None
    guide: float | None = None

    def saw(self, offset: int, plain: Sequence[float], hinted: Sequence[float] = ()) -> None:
        """Take the returns of one step."""
        self.played = True
        self.returns.extend(plain)
        self.offsets.extend([offset] * len(plain))
        self.hinted.extend(hinted)

    @property
    def window(self) -> dict[int, list[float]]:
        """Plain returns by step of the window."""
        out: dict[int, list[float]] = {}
        for offset, value in zip(self.offsets, self.returns, strict=True):
            out.setdefault(offset, []).append(value)
        return out

    @property
    def waiting(self) -> bool:
        """Whether the reward still needs a first play."""
        return self.kind in ("accepted", "repaired") and not self.played


def attempt_of(design: Design) -> Attempt:
    """A design as it begins to wait. After a repair, the trajectory is still that of the first turn."""
    twin = twin_id(design)
    kind: Kind = "invalid" if twin is None else "duplicate"
    if accepted(design):
        kind = "repaired" if design.repaired else "accepted"
    return Attempt(
        skill=design.brief.skill,
        trajectory=design.trajectory,
        kind=kind,
        program_id=design.program.id if design.program is not None else "",
        twin=twin or "",
        novelty=design.novelty,
        guide=design.guide,
    )


@dataclass(slots=True)
class DesignSet:
    """All attempts of one design step."""

    step: int
    attempts: tuple[Attempt, ...]

    def due(self, step: int, delay: int) -> bool:
        """Whether the set is trained at the end of `step`."""
        return step - self.step + 1 >= delay and not any(a.waiting for a in self.attempts)


def judged_means(made: DesignSet) -> list[tuple[str, float]]:
    """(skill, mean plain return) of the programs that were played without breaking: one scoring round of
    `SkillMeans`."""
    return [(a.skill, float(np.mean(a.returns))) for a in made.attempts if a.returns and not a.broken]


def set_rewards(
    made: DesignSet, cfg: Config, known: Mapping[str, float], means: SkillMeans
) -> dict[int, float]:
    """Reward by attempt number; attempts that cannot be judged or are not to be trained are left out.

    `known` holds rewards of earlier programs, for duplicates of them; `means` those of the skills, this set
    included. A program without a measured regret (its hint was refused) is given the mean regret of its skill
    in the set: neither rewarded nor punished.
    """
    rewards: dict[int, float] = {}
    earned = dict(known)
    regrets = [_regret(a, cfg) for a in made.attempts]
    for i, attempt in enumerate(made.attempts):
        if attempt.kind in ("invalid", "repaired") and cfg.design.include_invalid:
            rewards[i] = cfg.design.invalid_reward
        elif attempt.kind == "accepted":
            regret = regrets[i] or _typical_regret(attempt.skill, made.attempts, regrets)
            reward = _accepted_reward(attempt, regret, cfg, means)
            if reward is not None:
                rewards[i] = earned[attempt.program_id] = reward
    for i, attempt in enumerate(made.attempts):
        if attempt.kind == "duplicate":
            raw = earned.get(attempt.twin, cfg.design.invalid_reward)
            rewards[i] = shaped(raw, cfg.design, duplicate=True)
    return rewards


def _regret(attempt: Attempt, cfg: Config) -> Regret | None:
    """The regret the config asks for; None when it was not measured."""
    if cfg.reward.regret_window == "first" or attempt.regret is None:
        return attempt.regret
    return window_regret(attempt.hinted, attempt.returns)


def _accepted_reward(attempt: Attempt, regret: Regret, cfg: Config, means: SkillMeans) -> float | None:
    if attempt.broken:
        return cfg.design.fault_reward
    if not attempt.returns:
        return None  # never played, or every play was lost to infrastructure: nobody pays
    seen = Evidence(regret, attempt.window, means.slow(attempt.skill))
    raw = gated(raw_reward(cfg.reward.type, seen, cfg.reward), attempt.gate)
    if raw < 0 and cfg.reward.drop_negative:
        return None
    return shaped(raw, cfg.design, novelty=attempt.novelty, guide=attempt.guide)


def _typical_regret(skill: str, attempts: Sequence[Attempt], regrets: Sequence[Regret | None]) -> Regret:
    measured = [(a.skill, r) for a, r in zip(attempts, regrets, strict=True) if r is not None]
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
    """Credits of a due set; none when nothing is learned from designs (`learner.designer_weight` 0, or a
    Designer that never changes)."""
    order = sorted(rewards)
    if not order or not trains_designs(cfg):
        return []
    skills = [made.attempts[i].skill for i in order]
    values = [rewards[i] for i in order]
    advantages_N = scaled_advantages(
        values,
        skills,
        cfg.learner.designer_scale,
        n_agent=agent_samples,
        every=cfg.design.every,
        std_floor=cfg.learner.std_floor,
    )
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
