"""The skill gate: does seeing what happens help, or would a fixed sequence of actions do as well?

A game of luck can have any mean return, the wanted one included. What tells it from a game of skill is the
lead of real play over the best blind replay of its own winning action sequences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from spade.types import Outcome, Scored


def mean_and_error(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """Mean return of the scored plays and its standard error; (0, inf) without any.

    The error is that of the sample with one win and one loss added (n + 2 plays), so that eight wins out of
    eight do not claim certainty.
    """
    values = [o.value for o in outcomes if isinstance(o, Scored)]
    if not values:
        return 0.0, math.inf
    error = float(np.std([*values, 0.0, 1.0])) / math.sqrt(len(values) + 2)
    return float(np.mean(values)), error


def best_arm(arms: Sequence[Sequence[Outcome]], z: float) -> tuple[float, float]:
    """(mean, standard error) of the arm whose lower bound mean - z * error is highest.

    Choosing by the bound and not by the mean keeps a lucky short arm from winning by its noise.
    """
    return max((mean_and_error(arm) for arm in arms), key=lambda m: m[0] - z * m[1])


def skill_gate(
    best_return: float,
    best_se: float,
    floor: float,
    floor_se: float,
    margin: float = 0.1,
    width: float = 0.2,
    z: float = 1.0,
) -> float:
    """clip( (bound - margin) / width, 0, 1 ) with bound = best - floor - z * sqrt(best_se^2 + floor_se^2).

    `best_return` is what skilled play reaches (the better arm), `floor` what the best fixed action sequence
    reaches when replayed blind on fresh seeds. A pure guessing game has best = floor and earns exactly 0;
    the plain difference without the error term lets such games through by chance. A missing (NaN or
    infinite) error closes the gate. A `width` of 0 is a step at the margin.
    """
    error = math.hypot(best_se, floor_se)
    if not math.isfinite(best_return - floor) or not math.isfinite(error):
        return 0.0
    excess = best_return - floor - z * error - margin
    if width <= 0:
        return 1.0 if excess > 0 else 0.0
    return min(1.0, max(0.0, excess / width))


def gated(raw: float, gate: float) -> float:
    """`gate` * `raw`; a negative reward is not softened."""
    return raw if raw < 0 else gate * raw
