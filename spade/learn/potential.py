"""Running mean returns per skill, the reference of the `learning_potential` reward. State of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


class SkillMeans:
    """A fast and a slow mean of the return of each skill's programs.

        mu <- (1 - g) * mu + g * x       x: mean return of the skill's programs in one scoring round

    `g` weights the NEW value, so with the published 0.98 and 0.85 both follow the latest round closely; the
    first value initialises both. Only the slow mean is used, the gap between the two is logged.

    Source: SPADE (arXiv 2608.19197), the learning-potential ablation, constants of the public code.
    """

    def __init__(self, fast: float = 0.98, slow: float = 0.85) -> None:
        self.gains = (fast, slow)
        self.means: dict[str, tuple[float, float]] = {}

    def update(self, rows: Iterable[tuple[str, float]]) -> None:
        """One scoring round: (skill, mean return) of every judged program; a skill moves once."""
        by_skill: dict[str, list[float]] = {}
        for skill, mean in rows:
            by_skill.setdefault(skill, []).append(mean)
        for skill, values in by_skill.items():
            x = float(np.mean(values))
            if (old := self.means.get(skill)) is None:
                self.means[skill] = (x, x)
                continue
            fast, slow = ((1.0 - g) * mu + g * x for g, mu in zip(self.gains, old, strict=True))
            self.means[skill] = (fast, slow)

    def slow(self, skill: str) -> float:
        """The slow mean of a skill; NaN before its first round."""
        return self.means[skill][1] if skill in self.means else float("nan")

    def metrics(self) -> dict[str, float]:
        """`skill_gap/SKILL`: fast minus slow mean."""
        return {f"skill_gap/{skill}": fast - slow for skill, (fast, slow) in sorted(self.means.items())}

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {skill: list(pair) for skill, pair in self.means.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.means = {skill: (float(fast), float(slow)) for skill, (fast, slow) in state.items()}
