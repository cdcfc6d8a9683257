"""What a Designer earns for one environment program. Pure functions; every one returns a raw reward.

    evidence (plain returns by step of the window, regret) ──raw_reward──► raw
    raw ──gated (spade.learn.gate)──► ──shaped──► the reward that is centred per skill
                                                  (spade.learn.advantages.designer_advantages)

A reward is a number about one program. Only `learning_potential` needs more than its program: the slow mean
of the skill, which `spade.learn.potential` keeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from spade.config import DesignConfig, RewardConfig
from spade.errors import ConfigError
from spade.learn.regret import plateau
from spade.types import Regret


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the plays of one program showed.

    `window` maps a step of the window (0 = the first) to the plain returns of that step. `regret` is the one
    the config asks for (`reward.regret_window`). `skill_mean` is the slow mean of the skill's return.
    """

    regret: Regret
    window: Mapping[int, Sequence[float]] = field(default_factory=dict)
    skill_mean: float = math.nan

    @property
    def returns(self) -> list[float]:
        """All plain returns in the order of the steps."""
        return [r for offset in sorted(self.window) for r in self.window[offset]]

    @property
    def mean(self) -> float:
        """Mean plain return of the window; NaN without plays."""
        values = self.returns
        return sum(values) / len(values) if values else math.nan


def regret_part(regret: float, scale: float, floor: bool = True) -> float:
    """min(1, regret / scale), not below 0 if `floor`. Source: SPADE (arXiv 2608.19197), deployed reward."""
    part = min(1.0, regret / scale)
    return max(0.0, part) if floor else part


def blend(
    regret: float,
    plain_mean: float,
    trend: float = 0.0,
    *,
    band: tuple[float, float] = (0.4, 0.6),
    ramp: float = 0.25,
    regret_scale: float = 0.15,
    mlp_scale: float = 0.1,
    frontier_scale: float = 0.08,
    weights: tuple[float, float, float, float] = (0.4, 0.6, 0.0, 0.0),
    floor: bool = True,
) -> float:
    """Weighted sum of four parts, `weights` in this order:

        w_regret   * min(1, max(0, regret / regret_scale))
      + w_plateau  * plateau(plain_mean)
      + w_mlp      * trend / mlp_scale                          (signed, see `micro_lp_slope`)
      - w_frontier * (plain_mean - 0.5)^2 / frontier_scale

    `regret` is taken when the program is new, `plain_mean` over all unhinted plays of its window. With the
    default weights, those of all published runs, the sum is in [0, 1]. Without `floor` a negative regret
    counts as what it is. Parts of weight 0 are not looked at, so a NaN there does no harm.

    Source: SPADE (arXiv 2608.19197), the deployed reward and the general form of its public code.
    """
    w_regret, w_plateau, w_mlp, w_frontier = weights
    total = 0.0
    if w_regret:
        total += w_regret * regret_part(regret, regret_scale, floor)
    if w_plateau:
        total += w_plateau * plateau(plain_mean, *band, ramp)
    if w_mlp:
        total += w_mlp * trend / mlp_scale
    if w_frontier:
        total -= w_frontier * (plain_mean - 0.5) ** 2 / frontier_scale
    return total


def regret_only(regret: float, floor: bool = True) -> float:
    """max(0, regret), or regret itself without `floor`: the paper's minimax-regret objective, no anchor."""
    return max(0.0, regret) if floor else regret


def regret_lcb(regret: Regret, z: float = 1.0, prior: float = 2.0) -> float:
    """max(0, m - z * se) of the n pairs played and `prior` imagined pairs without a difference.

        N  = n + prior,   m = n * mean / N
        se = sqrt( (s - m^2) / (N - 1) ),   s = n * (var + mean^2) / N,   var = stderr^2 * (n - 1)

    The added pairs shrink small samples towards 0 and keep two equal differences from claiming an error of 0;
    with `prior` 0 it is the plain bound mean - z * stderr. Fewer than 2 pairs earn 0. A difference of two
    means of 8 to 16 binary plays has a standard error near 0.2, larger than the scale at which the blend
    saturates: the bound does not pay for that noise.

    Source: the lower confidence bound of the mean with pseudo-observations (Agresti and Coull 1998 for
    proportions), here for paired differences.
    """
    if regret.n < 2 or math.isnan(regret.stderr):
        return 0.0
    total = regret.n + prior
    mean = regret.n * regret.mean / total
    second = regret.n * (regret.stderr**2 * (regret.n - 1) + regret.mean**2) / total
    error = math.sqrt(max(0.0, second - mean**2) / (total - 1))
    return max(0.0, mean - z * error)


def learning_potential(plain_mean: float, skill_mean: float) -> float:
    """|mean return - slow mean of the skill|: far from what this skill's programs usually return.

    0 when either is unknown (NaN). Source: SPADE (arXiv 2608.19197), the ablation of that name; the means are
    kept by `spade.learn.potential.SkillMeans`.
    """
    distance = abs(plain_mean - skill_mean)
    return 0.0 if math.isnan(distance) else distance


def solve_rate(plain_mean: float, band: tuple[float, float] = (0.4, 0.6), ramp: float = 0.25) -> float:
    """The anchor alone: plateau(plain_mean)."""
    return plateau(plain_mean, *band, ramp)


def micro_lp(window: Mapping[int, Sequence[float]]) -> float:
    """max(0, mean of the late half - mean of the early half) over the steps that have returns.

    The middle step of an odd number counts as late. Plays are pooled within a half. Fewer than two steps show
    no progress: 0. Source: SPADE (arXiv 2608.19197), public code.
    """
    steps = [offset for offset in sorted(window) if len(window[offset])]
    if len(steps) < 2:
        return 0.0
    half = len(steps) // 2
    early, late = ([r for t in part for r in window[t]] for part in (steps[:half], steps[half:]))
    return max(0.0, float(np.mean(late) - np.mean(early)))


def micro_lp_slope(window: Mapping[int, Sequence[float]]) -> float:
    """Rise of the weighted least-squares line through the step means, from the first step to the last;
    signed.

        minimise sum_t n_t (mean_t - a - b t)^2;   result b * (last - first)

    n_t plays make the error of a step mean fall with sqrt(n_t), so residuals carry that weight. For T steps
    in a row the factor is T - 1. Fewer than two steps: 0. Source: SPADE (arXiv 2608.19197), public code, the
    form used inside the blend.
    """
    steps = [offset for offset in sorted(window) if len(window[offset])]
    if len(steps) < 2:
        return 0.0
    t = np.array(steps, dtype=np.float64)
    y = np.array([np.mean(window[offset]) for offset in steps])
    n = np.array([len(window[offset]) for offset in steps], dtype=np.float64)
    t_centred = t - np.average(t, weights=n)
    slope = np.sum(n * t_centred * (y - np.average(y, weights=n))) / np.sum(n * t_centred**2)
    return float(slope * (t[-1] - t[0]))


def variance(returns: Sequence[float]) -> float:
    """exp( -(Var - 0.25)^2 / (2 * 0.01) ) with the population variance: 1 for a coin toss, 0.04 at variance
    0.

    Without returns 0. Source: SPADE (arXiv 2608.19197), public code, the bonus of the learning-potential
    path.
    """
    return math.exp(-((float(np.var(returns)) - 0.25) ** 2) / 0.02) if len(returns) else 0.0


def learnability(plain_mean: float) -> float:
    """p (1 - p) with p the mean return clipped to [0, 1]; largest (0.25) at p = 1/2.

    Source: the variance of a binary return, used as a curriculum score by Tzannetos et al. (2023) and
    Rutherford et al. (2024). A NaN mean earns 0.
    """
    if math.isnan(plain_mean):
        return 0.0
    p = min(1.0, max(0.0, plain_mean))
    return p * (1.0 - p)


def _blend(seen: Evidence, cfg: RewardConfig) -> float:
    return blend(
        seen.regret.mean,
        seen.mean,
        micro_lp_slope(seen.window),
        band=(cfg.band_low, cfg.band_high),
        ramp=cfg.ramp,
        regret_scale=cfg.regret_scale,
        mlp_scale=cfg.mlp_scale,
        frontier_scale=cfg.frontier_scale,
        weights=(cfg.regret_weight, cfg.plateau_weight, cfg.mlp_weight, cfg.frontier_weight),
        floor=cfg.regret_floor,
    )


_BY_NAME: dict[str, Callable[[Evidence, RewardConfig], float]] = {
    "blend": _blend,
    "regret": lambda seen, cfg: regret_only(seen.regret.mean, cfg.regret_floor),
    "regret_lcb": lambda seen, cfg: regret_lcb(seen.regret, cfg.lcb_z, cfg.lcb_prior),
    "learning_potential": lambda seen, cfg: learning_potential(seen.mean, seen.skill_mean),
    "solve_rate": lambda seen, cfg: solve_rate(seen.mean, (cfg.band_low, cfg.band_high), cfg.ramp),
    "micro_lp": lambda seen, cfg: micro_lp(seen.window),
    "variance": lambda seen, cfg: variance(seen.returns),
    "learnability": lambda seen, cfg: learnability(seen.mean),
}

REWARDS = tuple(_BY_NAME)
"""Names `raw_reward` knows."""


def raw_reward(name: str, seen: Evidence, cfg: RewardConfig) -> float:
    """Raw Designer reward called `name` (one of `REWARDS`), plus `variance_weight` times the variance bonus.

    Raises `ConfigError` for an unknown name.
    """
    if name not in _BY_NAME:
        raise ConfigError(f"reward.type '{name}' is unknown; choose one of {', '.join(REWARDS)}.")
    raw = _BY_NAME[name](seen, cfg)
    return raw + cfg.variance_weight * variance(seen.returns) if cfg.variance_weight else raw


def shaped(
    raw: float,
    cfg: DesignConfig,
    *,
    novelty: float | None = None,
    guide: float | None = None,
    duplicate: bool = False,
) -> float:
    """A raw reward with the devices against collapse that `design.*` switches on:

        duplicate:  raw - duplicate_penalty,   `raw` being what the twin earned; nothing else applies
        multiply:   raw * (1 - guide_weight * (1 - guide)) + novelty_weight * novelty
        shift:      raw + guide_weight * (guide - 1/2)     + novelty_weight * novelty

    `guide` in [0, 1] is the model's own judgement of a design, `novelty` in [0, 1] its distance from what the
    memory holds (`spade.design.variety`); None (not measured) changes nothing. When the guide multiplies, a
    program that reads well but teaches nothing earns nothing, and a negative reward is not softened.

    Source of the guide factor: Self-Guided Self-Play (arXiv 2604.20209), where the Guide's score multiplies
    the reward of the problem writer.
    """
    if duplicate:
        return raw - cfg.duplicate_penalty
    if guide is not None and cfg.guide_mode == "shift":
        raw += cfg.guide_weight * (guide - 0.5)
    elif guide is not None and raw > 0:
        raw *= 1.0 - cfg.guide_weight * (1.0 - guide)
    return raw if novelty is None else raw + cfg.novelty_weight * novelty
