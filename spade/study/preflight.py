"""Will sparse reinforcement learning get any signal at this prior and budget, and if not, what to do?

lambda is the number of right rollouts to be expected of the whole budget if the policy did not move. With
none at all the update never moves, so success needs lambda well above 1, whatever the prior is called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spade.learn.entropy import upper_bound
from spade.study.tasks import Floats

LUCK, GO = 1.0, 10.0
"""lambda below which there is no signal to be expected, and from which the seed no longer decides."""
TEMPERATURES = (1.0, 0.7, 0.4)


@dataclass(frozen=True)
class Preflight:
    """The answer. Probabilities are at the rollout temperature."""

    prompts: int
    p0: float
    p0_geometric: float
    top_share: float
    """Share of the mass that the richest 1 % of the prompts hold (at least one prompt)."""
    rollouts: int
    expected_hits: float
    no_hit: float
    groups_with_signal: float
    by_temperature: dict[str, float]
    sampled_hits: int | None = None
    sampled: int | None = None

    @property
    def advice(self) -> str:
        """`no signal`, `luck` or `go`."""
        return "no signal" if self.expected_hits < LUCK else "luck" if self.expected_hits <= GO else "go"

    def text(self) -> str:
        """Everything, a line each."""
        lines = [
            f"prior p0           {self.p0:.3g} exact, mean over {self.prompts} prompts "
            f"(geometric mean {self.p0_geometric:.2g}; the richest 1 % hold {self.top_share:.0%})",
        ]
        if self.sampled is not None and self.sampled_hits is not None:
            lines.append(
                f"sampled            {self.sampled_hits} of {self.sampled} right, at most "
                f"{upper_bound(self.sampled_hits, self.sampled):.2g} (95 %)"
            )
        heats = ", ".join(f"T={t} {p:.2g}" for t, p in self.by_temperature.items())
        lines += [
            f"by temperature     {heats}",
            f"lambda             {self.expected_hits:.3g} right rollouts to be expected of {self.rollouts:,}",
            f"no hit at all      {self.no_hit:.2g}",
            f"groups with signal {self.groups_with_signal:.2%} at the start",
            f"advice             {self.advice}: {ADVICE[self.advice]}",
        ]
        return "\n".join(lines)


ADVICE = {
    "no signal": "a sparse reward will most likely never be earned; use a graded reward (partial, step), "
    "fine-tune on some wanted examples first, begin with easier prompts, or raise the rollout temperature if "
    "it is below 1",
    "luck": "the first hits decide, and seeds will differ; raise the budget or the prior until lambda is "
    "above 10, or plan for several seeds",
    "go": "a sparse reward will be earned often enough; watch the entropy, which first rises, then falls",
}


def preflight(
    mass_at: Callable[[float], Floats],
    rollouts: int,
    group: int,
    temperature: float = 1.0,
    sampled: tuple[int, int] | None = None,
) -> Preflight:
    """Figures from the exact mass by prompt of the pool, `mass_at(T)`; `sampled` is (hits, samples)."""
    mass = np.clip(mass_at(temperature), 0.0, 1.0)
    top = max(1, len(mass) // 100)
    expected = float(mass.mean()) * rollouts
    signal = 1.0 - mass**group - (1.0 - mass) ** group
    heats: Sequence[float] = sorted({*TEMPERATURES, temperature}, reverse=True)
    return Preflight(
        prompts=len(mass),
        p0=float(mass.mean()),
        p0_geometric=float(np.exp(np.log(np.maximum(mass, 1e-300)).mean())),
        top_share=float(np.sort(mass)[-top:].sum() / max(float(mass.sum()), 1e-300)),
        rollouts=rollouts,
        expected_hits=expected,
        no_hit=math.exp(-expected),
        groups_with_signal=float(signal.mean()),
        by_temperature={f"{t:g}": float(mass_at(t).mean()) for t in heats},
        sampled_hits=None if sampled is None else sampled[0],
        sampled=None if sampled is None else sampled[1],
    )
