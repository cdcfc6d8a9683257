"""From returns and rewards to advantages. Pure functions; axes: `_G` plays of a group, `_N` designs.

The baselines with a memory, `ema` and `rae`, keep their running means in `spade.learn.baselines`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spade.errors import ConfigError

Floats = npt.NDArray[np.float64]

GROUP_KINDS = ("zscore", "mean", "loo")
"""Baselines taken from the group itself."""

RUNNING_KINDS = ("ema", "rae")
"""Baselines that remember earlier steps."""

KINDS = (*GROUP_KINDS, *RUNNING_KINDS)
"""Names `agent_advantages` knows."""

SCALES = ("std", "reference", "none")
"""Names `scaled_advantages` knows."""


def agent_advantages(
    returns: npt.ArrayLike, kind: str = "zscore", std_floor: float = 0.1, baseline: float | None = None
) -> Floats:
    """Advantage of every play of ONE group (same program, same arm, same step), shape (G,) in and out.

    * zscore: (r - mean) / (std + std_floor), population std (GRPO, Shao et al. 2024; published floor 1e-8)
    * mean:   r - mean (no division, Liu et al. 2025, "Dr. GRPO")
    * loo:    r_i - mean of the others = (r_i - mean) * G / (G - 1) (RLOO, Ahmadian et al. 2024)
    * ema:    r - baseline, a running mean per program (SPADE, arXiv 2608.19197, public code)
    * rae:    r - baseline, a running mean per arm and skill (role-conditioned advantage estimation of SPIRAL,
              arXiv 2506.24119)

    The first three sum to 0, and a group of equal returns, or of one play, gives exact zeros: it carries no
    signal and is dropped by the learner. The last two need `baseline`; a group of equal returns keeps a
    signal there, since it is compared with earlier ones. Faults must be left out by the caller. Raises
    `ConfigError` for an unknown kind, ValueError on a return that is not finite or a missing baseline.
    """
    r_G = _finite(returns, "returns")
    if kind not in KINDS:
        raise ConfigError(f"learner.advantage '{kind}' is unknown; choose one of {', '.join(KINDS)}.")
    if kind in RUNNING_KINDS:
        if baseline is None:
            raise ValueError(f"'{kind}' needs the running mean as baseline")
        return r_G - baseline
    if r_G.size < 2 or np.ptp(r_G) == 0.0:
        return np.zeros_like(r_G)
    centred_G: Floats = r_G - r_G.mean()
    if kind == "zscore":
        return np.asarray(centred_G / (r_G.std() + std_floor), dtype=np.float64)
    if kind == "loo":
        return np.asarray(centred_G * r_G.size / (r_G.size - 1), dtype=np.float64)
    return centred_G


def designer_advantages(rewards: npt.ArrayLike, skills: Sequence[str], scale: float = 1.0) -> Floats:
    """(raw - mean raw of the same skill) * scale, shape (N,) in and out.

    Centred, not standardised: a skill whose designs all earn the same gets exact zeros, as does a skill with
    a single design. Source: SPADE (arXiv 2608.19197), Algorithm 1.
    """
    raw_N = _finite(rewards, "rewards")
    if len(skills) != raw_N.size:
        raise ValueError(f"{raw_N.size} rewards but {len(skills)} skills")
    names_N = np.asarray(skills, dtype=object)
    out_N = np.zeros_like(raw_N)
    for name in dict.fromkeys(skills):
        rows_N = names_N == name
        if np.ptp(raw_N[rows_N]) > 0.0:
            out_N[rows_N] = (raw_N[rows_N] - raw_N[rows_N].mean()) * scale
    return out_N


def designer_scale(n_agent: int, n_design: int, every: int, cap: float = 50.0) -> float:
    """min(cap, n_agent / n_design * every): how much rarer Designer samples are than the Agent's.

    `every` is the number of steps one set of designs lives. 192 plays, 24 designs, 4 steps: 32. Without
    designs: 0. Source: SPADE (arXiv 2608.19197), public code.
    """
    return min(cap, n_agent / n_design * every) if n_design else 0.0


def scaled_advantages(
    rewards: npt.ArrayLike,
    skills: Sequence[str],
    scale: str,
    *,
    n_agent: int,
    every: int,
    std_floor: float = 0.1,
) -> Floats:
    """Designer advantages of one set, shape (N,): centred per skill, then scaled by name.

    * none:      as they are; `learner.designer_weight` alone sets their weight in the loss
    * reference: times `designer_scale(n_agent, N, every)` (as published)
    * std:       divided by (population std of the centred rewards of the set + std_floor)

    Raises `ConfigError` for an unknown name.
    """
    if scale not in SCALES:
        raise ConfigError(f"learner.designer_scale '{scale}' is unknown; choose one of {', '.join(SCALES)}.")
    if scale == "reference":
        return designer_advantages(rewards, skills, designer_scale(n_agent, len(skills), every))
    centred_N = designer_advantages(rewards, skills)
    if scale == "none" or not centred_N.size:
        return centred_N
    return np.asarray(centred_N / (centred_N.std() + std_floor), dtype=np.float64)


def _finite(values: npt.ArrayLike, what: str) -> Floats:
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    if not np.isfinite(array).all():
        raise ValueError(f"{what} must be finite numbers, got {array[~np.isfinite(array)][0]}")
    return array
