"""Numbers about designs: the regret of new programs; what sets whose window is over showed and were paid."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spade.config import Config
from spade.learn.regret import plateau
from spade.learn.rewards import regret_part
from spade.train.pending import Attempt, DesignSet
from spade.types import Regret

Paid = tuple[DesignSet, Mapping[int, float], Sequence[float]]
"""A set, the reward of each attempt that has one, by its number, and their advantages in that order (none
when nothing is learned from designs)."""


def reward_rows(
    step: int, made: DesignSet, rewards: Mapping[int, float], advantages: Sequence[float]
) -> list[dict[str, Any]]:
    """One line of `rewards.jsonl` for each attempt of a set that is paid at `step` (counted from 1)."""
    learned = dict(zip(sorted(rewards), advantages, strict=False))
    return [
        {
            "step": step,
            "designed": made.step + 1,
            "number": i,
            "program": attempt.program_id or None,
            "skill": attempt.skill,
            "kind": attempt.kind,
            "reward": rewards.get(i),
            "advantage": learned.get(i),
            "plays": len(attempt.returns),
            "return": float(np.mean(attempt.returns)) if attempt.returns else None,
            "regret": attempt.regret.mean if attempt.regret is not None else None,
            "regret_stderr": _known(attempt.regret.stderr) if attempt.regret is not None else None,
            "gate": attempt.gate,
            "broken": attempt.broken,
        }
        for i, attempt in enumerate(made.attempts)
    ]


def regret_metrics(regrets: Sequence[Regret]) -> dict[str, float]:
    """The measured regrets of the programs that are new in a step; empty without any.

    `regret_stderr` is the standard error of their mean over programs.
    """
    if not regrets:
        return {}
    means = np.array([r.mean for r in regrets])
    out = {
        "regret": float(means.mean()),
        "regret_programs": float(len(means)),
        "regret_floored": float(np.mean(means < 0)),
    }
    if len(means) > 1:
        out["regret_stderr"] = float(means.std(ddof=1) / np.sqrt(len(means)))
    return out


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def paid_metrics(paid: Sequence[Paid], cfg: Config, version: int | None = None) -> dict[str, float]:
    """Metrics of the sets paid in one step.

    `version` is that of the weights which played last: how far behind it the Designer's samples are is their
    age in updates. None where another policy designs.
    """
    rewards = [r for _, by_number, _ in paid for r in by_number.values()]
    if not rewards:
        return {}
    attempts = [a for made, _, _ in paid for a in made.attempts]
    trained = sum(len(advantages) for _, _, advantages in paid)
    out = {
        "designer_reward": float(np.mean(rewards)),
        "designs_trained": float(trained),
        "window/unpaid": 1.0 - len(rewards) / len(attempts),
        **_skill_rewards(paid),
        **_window([a for a in attempts if a.returns and not a.broken], cfg),
    }
    if version is not None and trained:
        ages = [version - made.attempts[i].trajectory.weight_version for made, by, _ in paid for i in by]
        out["designer_age"] = float(np.mean(ages))
    return out


def _skill_rewards(paid: Sequence[Paid]) -> dict[str, float]:
    by_skill: dict[str, list[float]] = defaultdict(list)
    for made, by_number, _ in paid:
        for i, reward in by_number.items():
            by_skill[made.attempts[i].skill or "none"].append(reward)
    out = {f"skill/{skill}/reward": float(np.mean(values)) for skill, values in sorted(by_skill.items())}
    return out | {f"skill/{skill}/paid": float(len(values)) for skill, values in sorted(by_skill.items())}


def _window(judged: Sequence[Attempt], cfg: Config) -> dict[str, float]:
    """Means over the programs that were played without breaking, each over its whole window."""
    if not judged:
        return {}
    means = [float(np.mean(a.returns)) for a in judged]
    reward = cfg.reward
    out = {
        "window/programs": float(len(judged)),
        "window/plays": float(sum(len(a.returns) for a in judged)),
        "window/return": float(np.mean(means)),
        "window/return_var": float(np.mean([np.var(a.returns) for a in judged])),
        "window/plateau": float(
            np.mean([plateau(m, reward.band_low, reward.band_high, reward.ramp) for m in means])
        ),
    }
    regrets = [a.regret.mean for a in judged if a.regret is not None]
    if regrets:
        parts = [regret_part(r, reward.regret_scale) for r in regrets]
        out |= {
            "window/regret": float(np.mean(regrets)),
            "window/regret_std": float(np.std(regrets)),
            "window/regret_part": float(np.mean(parts)),
        }
    halves = [h for a in judged if (h := early_and_late(a)) is not None]
    if halves:
        out["window/early"], out["window/late"] = (float(np.mean(half)) for half in zip(*halves, strict=True))
    return out


def early_and_late(attempt: Attempt) -> tuple[float, float] | None:
    """Mean return of the early and of the late half of the window's steps (the middle one is late), as in the
    reward `micro_lp`; None for fewer than two steps with plays."""
    window = attempt.window
    steps = sorted(window)
    if len(steps) < 2:
        return None
    half = len(steps) // 2
    early, late = ([r for t in part for r in window[t]] for part in (steps[:half], steps[half:]))
    return float(np.mean(early)), float(np.mean(late))
