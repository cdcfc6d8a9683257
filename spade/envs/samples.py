"""The samples of the battery: fixed seeds, how many of them, and what a sample shows.

Seeds and sizes are part of the battery version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spade.rng import child_seed

BATTERY_ROOT = 0
"""Root of all seeds of the battery."""
FLOOR_SEEDS = 16
"""Episodes a policy is screened on."""
CONFIRM_SEEDS = 96
"""Fresh episodes for a policy above the limit on the first ones; these decide, so that noise does not."""
CLEARED_SEEDS = 32
"""A policy that stays under the limit on the first so many fresh episodes is cleared without the others."""
DONOR_SEEDS = 24
"""Further seeds whose answers a guesser may know."""
MARGIN = 1.64
"""Standard errors (at the limit itself) that a policy must exceed the limit by on the fresh episodes."""


def battery_seeds(kind: str, count: int) -> list[int]:
    """The fixed seeds of one part of the battery (31-bit)."""
    return [child_seed(BATTERY_ROOT, "battery", kind, i) & 0x7FFFFFFF for i in range(count)]


@dataclass(frozen=True, slots=True)
class Probe:
    """One seed's first observation and solution. `actions` is the solution as it reaches `step`."""

    seed: int
    observation: str
    solution: str | list[str]
    actions: tuple[str, ...]
    answer: str
    """The solution as plain text: contents of its actions, joined by spaces."""


def above_limit(mean: float, limit: float, count: int) -> bool:
    """Whether a mean of `count` episodes is above the limit by more than chance."""
    return bool(mean > limit + MARGIN * (max(limit * (1 - limit), 1e-4) / count) ** 0.5)


def match_rate(probes: Sequence[Probe], wins: Callable[[str, str], bool]) -> float:
    """How often `wins(observation, answer)` holds for a seed's own answer, minus for another seed's.

    The second is the permutation control: it keeps small answer spaces from raising false alarms.
    """
    others = [*probes[1:], *probes[:1]]
    own = sum(wins(p.observation, p.answer) for p in probes)
    crossed = sum(wins(p.observation, o.answer) for p, o in zip(probes, others, strict=True))
    return (own - crossed) / len(probes)
