"""Statistics of evaluations: means, intervals and tests, as pure functions over arrays.

Two kinds of noise are kept apart. *Item noise* comes from the finite set of items and is measured by
resampling items within each part of a suite. *Training noise* comes from the seed of a run and is measured
by a t interval over runs. A part is named `top` or `top/leaf`; a top part is the plain mean of its leaves and
a suite's score the plain mean of its top parts, so that a part with more items does not weigh more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

DRAWS = 10_000
SCORE = "score"
"""Column name of a suite's mean over its top parts."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A point estimate with its interval. `stderr` is the standard error behind it; `n` the units."""

    mean: float
    low: float
    high: float
    stderr: float
    n: int

    @property
    def excludes_zero(self) -> bool:
        """True when zero lies outside the interval (never for an undefined one)."""
        return self.low > 0 or self.high < 0


def clustered_mean(values: ArrayLike, clusters: Sequence[str]) -> tuple[float, float, int]:
    """Mean, its standard error clustered by `clusters`, and the number of values.

    The variance is G/(G-1) * sum over clusters of (sum of residuals)^2 / n^2 with G clusters; with one value
    a cluster it equals the usual s^2/n. The error is NaN below two clusters, the mean NaN without values.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.shape != (len(clusters),):
        raise ValueError(f"{x.shape[0]} values but {len(clusters)} cluster names")
    if x.size == 0:
        return math.nan, math.nan, 0
    mean = float(x.mean())
    names, index = np.unique(np.asarray(clusters), return_inverse=True)
    groups = len(names)
    if groups < 2:
        return mean, math.nan, int(x.size)
    sums = np.bincount(index, weights=x - mean, minlength=groups)
    variance = groups / (groups - 1) * float(np.square(sums).sum()) / x.size**2
    return mean, math.sqrt(variance), int(x.size)


def columns_of(parts: Sequence[str]) -> dict[str, dict[str, float]]:
    """The columns of a suite with these leaf parts: column name -> weight of each leaf.

    Example: parts `a/easy a/hard b` give the columns `a/easy`, `a/hard`, `a`, `b` and `score`.
    """
    leaves = sorted(set(parts))
    tops: dict[str, list[str]] = {}
    for leaf in leaves:
        tops.setdefault(leaf.split("/")[0], []).append(leaf)
    columns: dict[str, dict[str, float]] = {}
    for top, own in tops.items():
        for leaf in own:
            columns[leaf] = {leaf: 1.0}
        columns[top] = {leaf: 1 / len(own) for leaf in own}
    columns[SCORE] = {leaf: 1 / (len(tops) * len(own)) for own in tops.values() for leaf in own}
    return columns


def column_means(
    values: Mapping[str, tuple[ArrayLike, Sequence[str]]],
) -> dict[str, tuple[float, float, int]]:
    """(mean, standard error, n) of every column; `values` maps a leaf part to (values, clusters).

    Leaves share no programs, so the variances of a combined column add with squared weights.
    """
    leaf = {part: clustered_mean(x, clusters) for part, (x, clusters) in values.items()}
    out: dict[str, tuple[float, float, int]] = {}
    for name, weights in columns_of(list(values)).items():
        mean = sum(w * leaf[p][0] for p, w in weights.items())
        stderr = math.sqrt(sum((w * leaf[p][1]) ** 2 for p, w in weights.items()))
        out[name] = (mean, stderr, sum(leaf[p][2] for p in weights))
    return out


def bootstrap_means(values: ArrayLike, draws: int, rng: np.random.Generator) -> Floats:
    """Means of `draws` resamples of `values` with replacement, shape (draws,).

    A resample of n items is a multinomial count over their distinct values; scores have few distinct values,
    so this is exact and needs draws x distinct numbers instead of draws x n.
    """
    x = np.asarray(values, dtype=np.float64)
    distinct, counts = np.unique(x, return_counts=True)
    if len(distinct) * 4 > x.size:  # nearly all different: plain index resampling, in slices to bound memory
        step = max(1, 4_000_000 // x.size)
        sizes = [min(step, draws - at) for at in range(0, draws, step)]
        return np.concatenate([x[rng.integers(0, x.size, (size, x.size))].mean(axis=1) for size in sizes])
    drawn = rng.multinomial(x.size, counts / x.size, size=draws)
    return np.asarray(drawn @ distinct / x.size, dtype=np.float64)


def paired_bootstrap(
    differences: Mapping[str, ArrayLike], *, draws: int = DRAWS, seed: int = 0, level: float = 0.95
) -> dict[str, Interval]:
    """Percentile intervals of the mean paired difference for every column, items resampled within parts.

    `differences` maps a leaf part to one difference per item. All columns use the same draws, so they are
    consistent with each other. Deterministic in `seed`.
    """
    rng = np.random.default_rng(seed)
    drawn = {part: bootstrap_means(differences[part], draws, rng) for part in sorted(differences)}
    arrays = {part: np.asarray(x, dtype=np.float64) for part, x in differences.items()}
    tail = 100 * (1 - level) / 2
    out: dict[str, Interval] = {}
    for name, weights in columns_of(list(differences)).items():
        sample = sum((w * drawn[p] for p, w in weights.items()), start=np.zeros(draws))
        low, high = np.percentile(sample, [tail, 100 - tail])
        mean = sum(w * float(arrays[p].mean()) for p, w in weights.items())
        n = sum(arrays[p].size for p in weights)
        out[name] = Interval(mean, float(low), float(high), float(sample.std(ddof=1)), n)
    return out


def cluster_bootstrap(
    values: ArrayLike, clusters: Sequence[str], *, draws: int = DRAWS, seed: int = 0, level: float = 0.95
) -> tuple[float, float]:
    """Percentile interval of the mean, whole clusters resampled; NaN below two clusters.

    Deterministic in `seed`.
    """
    x = np.asarray(values, dtype=np.float64)
    names, index = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)
    groups = len(names)
    if groups < 2:
        return math.nan, math.nan
    rng = np.random.default_rng(seed)
    sums = np.bincount(index, weights=x, minlength=groups)
    counts = np.bincount(index, minlength=groups)
    if (counts == counts[0]).all():
        sample = bootstrap_means(sums / counts[0], draws, rng)
    else:
        step = max(1, 4_000_000 // groups)
        chosen = (rng.integers(0, groups, (min(step, draws - at), groups)) for at in range(0, draws, step))
        sample = np.concatenate([sums[c].sum(axis=1) / counts[c].sum(axis=1) for c in chosen])
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(sample, [tail, 100 - tail])
    return float(low), float(high)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Unbiased estimate of "one of k samples is right" from `correct` of `n` samples.

    1 - C(n - c, k) / C(n, k), Chen et al. 2021 (arXiv 2107.03374).
    Raises ValueError unless 1 <= k <= n and 0 <= correct <= n.
    """
    if not (1 <= k <= n and 0 <= correct <= n):
        raise ValueError(f"pass@{k} of {correct} right among {n} is not defined")
    return 1 - math.comb(n - correct, k) / math.comb(n, k)


def t_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Student t interval of the mean, e.g. over per-seed differences. NaN bounds below two values."""
    x = np.asarray(values, dtype=np.float64)
    mean = float(x.mean()) if x.size else math.nan
    if x.size < 2:
        return Interval(mean, math.nan, math.nan, math.nan, int(x.size))
    stderr = float(x.std(ddof=1)) / math.sqrt(x.size)
    half = t_quantile((1 + level) / 2, x.size - 1) * stderr
    return Interval(mean, mean - half, mean + half, stderr, int(x.size))


def t_quantile(p: float, df: int) -> float:
    """Quantile of Student's t distribution."""
    from scipy import stats as scipy_stats

    quantile: Any = scipy_stats.t.ppf(p, df)
    return float(quantile)


def t_p_value(interval: Interval) -> float:
    """Two-sided p-value of "the mean is zero" for a t interval; NaN below two values."""
    from scipy import stats as scipy_stats

    if math.isnan(interval.stderr):
        return math.nan
    if interval.stderr == 0:
        return 1.0 if interval.mean == 0 else 0.0
    tail: Any = scipy_stats.t.sf(abs(interval.mean) / interval.stderr, interval.n - 1)
    return min(1.0, 2 * float(tail))


def normal_p_value(interval: Interval) -> float:
    """Two-sided p-value of "the mean is zero" from a standard error, by the normal approximation."""
    if interval.stderr == 0:
        return 1.0 if interval.mean == 0 else 0.0
    return math.erfc(abs(interval.mean) / interval.stderr / math.sqrt(2))


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Two-sided exact McNemar p-value from the discordant counts: a sign test with p = 1/2. 1.0 if none."""
    n = only_first + only_second
    if n == 0:
        return 1.0
    term = tail = 1
    for k in range(min(only_first, only_second)):  # binomial coefficients, each from the one before
        term = term * (n - k) // (k + 1)
        tail += term
    return min(1.0, 2 * tail / (1 << n))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given. NaN stays NaN and is not counted."""
    known = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    adjusted = [math.nan] * len(p_values)
    highest = 0.0
    for rank, (p, i) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        adjusted[i] = highest
    return adjusted


def detectable_effect(
    stderr: float, level: float = 0.95, power: float = 0.8, *, df: int | None = None
) -> float:
    """Smallest true difference found with `power` at two-sided `level`, for a normal estimate.

    With `df`, for one whose standard error has that many degrees of freedom: quantiles of Student's t.
    """
    from statistics import NormalDist

    tail = (1 + level) / 2
    if df is not None:
        return (t_quantile(tail, df) + t_quantile(power, df)) * stderr
    normal = NormalDist()
    return (normal.inv_cdf(tail) + normal.inv_cdf(power)) * stderr
