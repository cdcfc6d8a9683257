"""The statistics of the study: intervals, paired tests, bootstrap over trunks and seeds, dose-response."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spade.study.tasks import Floats

DRAWS = 10_000
Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def wilson(successes: int, n: int) -> Interval:
    """Wilson's interval of a rate; without trials the whole range."""
    if n == 0:
        return Interval(math.nan, 0.0, 1.0)
    p = successes / n
    centre = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n)) / (1 + Z * Z / n)
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return Interval(p, low if successes else 0.0, high if successes < n else 1.0)  # exact at both ends


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> float:
    """Exact two-sided McNemar test of paired successes; 1 when no pair differs."""
    only_first = sum(a and not b for a, b in zip(first, second, strict=True))
    only_second = sum(b and not a for a, b in zip(first, second, strict=True))
    n, k = only_first + only_second, min(only_first, only_second)
    return min(1.0, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n) if n else 1.0


def bootstrap(by_trunk: Mapping[int, Sequence[float]], seed: int = 0, draws: int = DRAWS) -> Interval:
    """Mean with a percentile interval, resampling trunks and then the seeds within each.

    Evaluation prompts are fixed and never resampled: an interval over prompts alone would say nothing of
    another training run.
    """
    groups = [np.asarray(values, np.float64) for values in by_trunk.values() if len(values)]
    if not groups:
        return Interval(math.nan, -math.inf, math.inf)
    rng = np.random.default_rng(seed)
    count = len(groups)
    picked = rng.integers(0, count, (draws, count))
    means = np.zeros(draws)
    for number, group in enumerate(groups):
        drawn = group[rng.integers(0, len(group), (draws, count, len(group)))].mean(-1)
        means += np.where(picked == number, drawn, 0.0).sum(-1) / count
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(np.mean([g.mean() for g in groups])), float(low), float(high))


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Rank correlation, ties averaged; NaN when one side does not vary."""
    from scipy.stats import rankdata

    a, b = rankdata(x), rankdata(y)
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return math.nan
    return float(np.corrcoef(a, b)[0, 1])


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the given order."""
    order = np.argsort(p_values)
    adjusted, running = np.empty(len(order)), 0.0
    for rank, at in enumerate(order):
        running = max(running, min(1.0, (len(order) - rank) * p_values[at]))
        adjusted[at] = running
    return [float(p) for p in adjusted]


def lambda_fifty(
    lambdas: Sequence[float], success: Sequence[bool], seed: int = 0, draws: int = 500
) -> Interval:
    """lambda at which half of the runs succeed: logistic regression on log10 lambda, interval by bootstrap.

    A weak ridge keeps the slope finite where successes and failures are cleanly apart. NaN when all runs
    ended alike.
    """
    x = np.log10(np.maximum(np.asarray(lambdas, np.float64), 1e-6))
    y = np.asarray(success, np.float64)
    if y.min() == y.max():
        return Interval(math.nan, math.nan, math.nan)
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(draws):
        rows = rng.integers(0, len(x), len(x))
        if y[rows].min() < y[rows].max():
            found.append(_logistic_middle(x[rows], y[rows]))
    low, high = np.percentile(found, [2.5, 97.5])
    return Interval(10 ** _logistic_middle(x, y), 10 ** float(low), 10 ** float(high))


def _logistic_middle(x: Floats, y: Floats, ridge: float = 1e-2) -> float:
    """x at which the fitted probability is one half (Newton's method)."""
    centre = x.mean()
    design = np.stack([np.ones_like(x), x - centre], 1)
    weights = np.zeros(2)
    penalty = np.diag([0.0, ridge])
    for _ in range(100):
        p = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        gradient = design.T @ (y - p) - penalty @ weights
        hessian = (design * (p * (1 - p))[:, None]).T @ design + penalty + 1e-9 * np.eye(2)
        move = np.linalg.solve(hessian, gradient)
        weights = weights + np.clip(move, -2, 2)
        if np.abs(move).max() < 1e-9:
            break
    slope = weights[1] if abs(weights[1]) > 1e-6 else 1e-6
    return float(np.clip(centre - weights[0] / slope, x.min() - 2, x.max() + 2))
