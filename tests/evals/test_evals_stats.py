"""Statistics against scipy and against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from spade_evals import stats


def test_clustered_error_equals_plain_error_with_one_value_a_cluster() -> None:
    x = np.random.default_rng(0).normal(size=40)
    mean, stderr, n = stats.clustered_mean(x, [str(i) for i in range(40)])
    assert n == 40
    assert mean == pytest.approx(x.mean())
    assert stderr == pytest.approx(scipy_stats.sem(x))


def test_clustered_error_matches_error_of_cluster_means_when_balanced() -> None:
    x = np.random.default_rng(1).normal(size=(8, 5)) + np.arange(8)[:, None]
    clusters = [f"p{i}" for i in range(8) for _ in range(5)]
    _, stderr, _ = stats.clustered_mean(x.ravel(), clusters)
    assert stderr == pytest.approx(scipy_stats.sem(x.mean(axis=1)))
    assert stderr > 1.5 * scipy_stats.sem(x.ravel())


def test_clustered_mean_edges() -> None:
    assert stats.clustered_mean([0.25], ["p"])[0] == 0.25
    assert math.isnan(stats.clustered_mean([0.0, 1.0], ["p", "p"])[1])
    assert math.isnan(stats.clustered_mean([], [])[0])
    with pytest.raises(ValueError, match="cluster names"):
        stats.clustered_mean([1.0], ["p", "q"])


def test_columns_weigh_parts_and_not_items() -> None:
    columns = stats.columns_of(["a/easy", "a/hard", "b"])
    assert list(columns) == ["a/easy", "a/hard", "a", "b", "score"]
    assert columns["score"] == {"a/easy": 0.25, "a/hard": 0.25, "b": 0.5}
    values = {
        "a/easy": ([1.0] * 30, ["p", "q", "r"] * 10),
        "a/hard": ([0.0] * 10, ["s", "t"] * 5),
        "b": ([1.0, 0.0, 1.0, 0.0], ["u", "u", "v", "v"]),
    }
    means = stats.column_means(values)
    assert means["a"][0] == pytest.approx(0.5)
    assert means["score"][0] == pytest.approx(0.5)
    assert means["score"][2] == 44


def test_mcnemar_matches_scipy_binomial_test() -> None:
    for b, c in [(0, 0), (0, 5), (7, 3), (12, 12), (40, 61), (1, 200), (2400, 2590)]:
        expected = scipy_stats.binomtest(b, b + c, 0.5).pvalue if b + c else 1.0
        assert stats.mcnemar_exact(b, c) == pytest.approx(expected)


def test_holm_worked_example_and_nan() -> None:
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    adjusted = stats.holm([0.02, math.nan, 0.03])
    assert adjusted[0] == pytest.approx(0.04)
    assert math.isnan(adjusted[1])
    assert adjusted[2] == pytest.approx(0.04)


def test_t_interval_matches_scipy() -> None:
    x = [0.2, 0.25, 0.18, 0.3, 0.22]
    expected = scipy_stats.t.interval(0.95, 4, loc=np.mean(x), scale=scipy_stats.sem(x))
    got = stats.t_interval(x)
    assert (got.low, got.high) == pytest.approx(expected)
    assert math.isnan(stats.t_interval([0.3]).low)
    assert not stats.t_interval([0.3]).excludes_zero


def test_bootstrap_matches_scipy_and_is_deterministic() -> None:
    rng = np.random.default_rng(2)
    diff = rng.integers(-1, 2, 300).astype(float)
    got = stats.paired_bootstrap({"b": diff}, seed=3)["b"]
    reference = scipy_stats.bootstrap(
        (diff,), np.mean, n_resamples=4000, method="percentile", random_state=5
    ).confidence_interval
    assert got.low == pytest.approx(reference.low, abs=0.012)
    assert got.high == pytest.approx(reference.high, abs=0.012)
    assert got == stats.paired_bootstrap({"b": diff}, seed=3)["b"]
    assert got != stats.paired_bootstrap({"b": diff}, seed=4)["b"]


def test_both_ways_of_resampling_agree() -> None:
    rng = np.random.default_rng(7)
    few = rng.integers(0, 2, 400).astype(float)
    many = few + rng.normal(scale=1e-9, size=400)
    a = stats.bootstrap_means(few, 4000, rng)
    b = stats.bootstrap_means(many, 4000, rng)
    assert a.std() == pytest.approx(b.std(), rel=0.06)
    assert scipy_stats.ks_2samp(a, np.round(b, 6)).pvalue > 1e-4


def test_score_interval_combines_parts() -> None:
    rng = np.random.default_rng(4)
    parts = {"a/easy": rng.normal(size=200), "a/hard": rng.normal(size=100), "b": rng.normal(size=50)}
    out = stats.paired_bootstrap(parts, seed=1)
    weights = stats.columns_of(list(parts))["score"]
    expected = math.sqrt(sum((w * scipy_stats.sem(parts[p])) ** 2 for p, w in weights.items()))
    assert out["score"].stderr == pytest.approx(expected, rel=0.05)
    assert out["score"].mean == pytest.approx(out["a"].mean / 2 + out["b"].mean / 2)


TRIALS = 2000


def _simulated(effect: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Differences of 320 paired 0/1 items in two parts; the items' difficulty is shared by both sides."""
    diffs = {}
    for part, size, base in (("a", 200, 0.4), ("b", 120, 0.3)):
        difficulty = rng.uniform(size=size)
        luck = rng.uniform(0, 0.3, size=(2, size))
        first = (0.8 * difficulty + luck[0] < base + 0.1).astype(float)
        better = rng.uniform(size=size) < effect
        second = np.maximum((0.8 * difficulty + luck[1] < base + 0.1), better).astype(float)
        diffs[part] = second - first
    return diffs


@pytest.mark.parametrize("effect", [0.0, 0.15])
def test_coverage_of_the_paired_interval(effect: float) -> None:
    """95 % intervals cover the truth in 93 to 97 % of 2,000 simulated comparisons."""
    rng = np.random.default_rng(11)
    truth = _true_effect(effect)
    hits = 0
    for trial in range(TRIALS):
        interval = stats.paired_bootstrap(_simulated(effect, rng), draws=1000, seed=trial)["score"]
        hits += interval.low <= truth <= interval.high
    assert 0.93 <= hits / TRIALS <= 0.97


def test_false_positives_without_a_difference() -> None:
    """Of 2,000 null comparisons at most 6.5 % are called different, by any of three tests."""
    rng = np.random.default_rng(12)
    found = dict.fromkeys(("interval", "p", "McNemar"), 0)
    for trial in range(TRIALS):
        diffs = _simulated(0.0, rng)
        interval = stats.paired_bootstrap(diffs, draws=1000, seed=trial)["score"]
        together = np.concatenate(list(diffs.values()))
        found["interval"] += interval.excludes_zero
        found["p"] += stats.normal_p_value(interval) < 0.05
        found["McNemar"] += stats.mcnemar_exact(int((together > 0).sum()), int((together < 0).sum())) < 0.05
    assert max(found.values()) / TRIALS <= 0.065
    assert found["interval"] / TRIALS >= 0.03  # nor is it so wide that it never finds anything


def test_holm_against_the_definition() -> None:
    """Adjusted p <= level exactly when the step-down procedure rejects at that level."""
    rng = np.random.default_rng(13)
    for _ in range(50):
        p = rng.uniform(0, 0.2, size=int(rng.integers(1, 9)))
        adjusted = stats.holm(list(p))
        for level in (0.01, 0.05, 0.1, 0.5):
            rejected = set()
            for rank, i in enumerate(np.argsort(p)):
                if p[i] > level / (len(p) - rank):
                    break
                rejected.add(int(i))
            assert {i for i, q in enumerate(adjusted) if q <= level} == rejected


def _true_effect(effect: float) -> float:
    """A solved item stays solved; an unsolved one (share 1 - p) is gained with probability `effect`."""
    total = 0.0
    for base in (0.4, 0.3):
        # P(0.8 u + 0.3 v < t), u and v uniform, for 0.3 < t < 0.8: (t - 0.15) / 0.8
        p = (base + 0.1 - 0.15) / 0.8
        total += effect * (1 - p) / 2
    return total


def test_detectable_effect() -> None:
    assert stats.detectable_effect(0.01) == pytest.approx(0.028, abs=2e-4)
