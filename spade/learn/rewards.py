"""What a Designer earns for one environment program. Pure functions; every one returns a raw reward.

Raw rewards are centred per skill and scaled by `spade.learn.advantages.designer_advantages`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from spade.errors import ConfigError
from spade.learn.regret import plateau
from spade.types import Outcome, Regret, Scored

REWARDS = ("blend", "regret", "regret_lcb", "solve_rate", "learnability")
"""Names `designer_reward` knows."""


LCB_Z = 1.0
"""Standard errors `regret_lcb` subtracts when `gate_z` is left at 0 (which would make it plain regret)."""


class RewardSettings(Protocol):
    """The fields read from `spade.config.RewardConfig`."""

    @property
    def band_low(self) -> float: ...
    @property
    def band_high(self) -> float: ...
    @property
    def ramp(self) -> float: ...
    @property
    def regret_scale(self) -> float: ...
    @property
    def regret_weight(self) -> float: ...
    @property
    def plateau_weight(self) -> float: ...
    @property
    def gate_z(self) -> float: ...


def blend(
    regret: float,
    plain_mean: float,
    *,
    band: tuple[float, float] = (0.4, 0.6),
    ramp: float = 0.25,
    scale: float = 0.15,
    weights: tuple[float, float] = (0.4, 0.6),
) -> float:
    """weights[0] * min(1, max(0, regret / scale)) + weights[1] * plateau(plain_mean).

    `regret` is taken when the program is new, `plain_mean` over all unhinted plays of its window; in [0, 1]
    when the weights sum to 1. Source: SPADE (arXiv 2608.19197), the deployed reward.
    """
    regret_part = min(1.0, max(0.0, regret / scale))
    return weights[0] * regret_part + weights[1] * plateau(plain_mean, *band, ramp)


def regret_only(regret: float) -> float:
    """max(0, regret): the paper's minimax-regret objective without the anchor."""
    return max(0.0, regret)


def regret_lcb(regret: Regret, z: float) -> float:
    """max(0, mean - z * stderr): regret the plays support at `z` standard errors; 0 with fewer than 2 pairs.

    A difference of two means of 8 to 16 binary plays has a standard error near 0.2, larger than the scale
    at which the blend saturates; the lower bound stops paying for that noise.
    """
    return 0.0 if regret.n < 2 else max(0.0, regret.mean - z * regret.stderr)


def solve_rate(plain_mean: float, band: tuple[float, float] = (0.4, 0.6), ramp: float = 0.25) -> float:
    """The anchor alone: plateau(plain_mean)."""
    return plateau(plain_mean, *band, ramp)


def learnability(plain_mean: float) -> float:
    """p (1 - p) with p the mean return clipped to [0, 1]; largest (0.25) at p = 1/2.

    Source: the variance of a binary return, used as a curriculum score by Tzannetos et al. (2023) and
    Rutherford et al. (2024). A NaN mean earns 0.
    """
    if math.isnan(plain_mean):
        return 0.0
    p = min(1.0, max(0.0, plain_mean))
    return p * (1.0 - p)


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


def designer_reward(
    name: str, *, regret: Regret, plain_mean: float, cfg: RewardSettings, gate: float = 1.0
) -> float:
    """Raw Designer reward called `name` (one of `REWARDS`), multiplied by `gate` (see `skill_gate`).

    Raises `ConfigError` for an unknown name.
    """
    band = (cfg.band_low, cfg.band_high)
    if name == "blend":
        weights = (cfg.regret_weight, cfg.plateau_weight)
        raw = blend(
            regret.mean, plain_mean, band=band, ramp=cfg.ramp, scale=cfg.regret_scale, weights=weights
        )
    elif name == "regret":
        raw = regret_only(regret.mean)
    elif name == "regret_lcb":
        raw = regret_lcb(regret, cfg.gate_z or LCB_Z)
    elif name == "solve_rate":
        raw = solve_rate(plain_mean, band, cfg.ramp)
    elif name == "learnability":
        raw = learnability(plain_mean)
    else:
        raise ConfigError(f"reward.type '{name}' is unknown; choose one of {', '.join(REWARDS)}.")
    return gate * raw
