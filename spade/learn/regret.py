"""Regret of one environment program, and the flat-top difficulty reward. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from spade.types import Outcome, Regret, Scored


def paired_regret(hinted: Sequence[Outcome], plain: Sequence[Outcome]) -> Regret:
    """Mean of `hinted[i] - plain[i]` over pairs in which both plays have a score.

    mean = 1/n sum_i d_i,  stderr = sqrt( sum_i (d_i - mean)^2 / (n - 1) / n ),  d_i = r(y_i, hint) - r(y_i).

    Pairs share a seed, which removes the seed's difficulty from the difference. Where the arms have different
    lengths, the surplus of the longer one is left out. A pair with a fault on either side is dropped and
    counted in `faults`. With no pair left `mean` is 0.0 (no evidence), `n` is 0.

    Source: SPADE (arXiv 2608.19197), Section 3, with paired seeds instead of independent ones.
    """
    pairs = list(zip(hinted, plain, strict=False))
    differences = [h.value - p.value for h, p in pairs if isinstance(h, Scored) and isinstance(p, Scored)]
    n = len(differences)
    mean = float(np.mean(differences)) if n else 0.0
    stderr = float(np.std(differences, ddof=1) / math.sqrt(n)) if n > 1 else math.nan
    return Regret(mean=mean, stderr=stderr, n=n, faults=len(pairs) - n)


def window_regret(hinted: Sequence[float], plain: Sequence[float]) -> Regret:
    """Mean hinted return minus mean plain return over the whole window of a design set.

    stderr = sqrt( var_h / n_h + var_p / n_p ) with sample variances: the arms are not paired, since hinted
    plays exist at the first step only and the weights have changed since. What the Agent learned during the
    window lowers this regret, so it is not the regret of any one policy. `n` is the smaller arm; an empty arm
    gives mean 0.0 and n 0.

    Source: SPADE (arXiv 2608.19197), public code, the reward without the anchor.
    """
    n = min(len(hinted), len(plain))
    if n == 0:
        return Regret(mean=0.0, stderr=math.nan, n=0, faults=0)
    stderr = math.nan
    if n > 1:
        stderr = math.sqrt(sum(float(np.var(arm, ddof=1)) / len(arm) for arm in (hinted, plain)))
    return Regret(mean=float(np.mean(hinted) - np.mean(plain)), stderr=stderr, n=n, faults=0)


def plateau(w: float, low: float = 0.4, high: float = 0.6, ramp: float = 0.25) -> float:
    """Flat-top reward of a mean return `w`: 1 inside [low, high], falling to 0 within `ramp` outside.

    plateau(w) = 1 if low <= w <= high, else max(0, 1 - distance(w, [low, high]) / ramp). A `ramp` of 0 is a
    hard edge; a NaN `w` (nothing measured) earns 0.

    Source: SPADE (arXiv 2608.19197), the anchor term of the Designer reward.
    """
    if math.isnan(w):
        return 0.0
    distance = max(low - w, w - high, 0.0)
    if distance == 0.0:
        return 1.0
    return max(0.0, 1.0 - distance / ramp) if ramp > 0 else 0.0
