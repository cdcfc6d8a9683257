"""Verdicts on synthetic logs, and the statistics behind them against known values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from spade.study import stats
from spade.study.layouts import tables_of
from spade.study.pairs import comparisons, drive, slopes
from spade.study.preflight import preflight
from spade.study.verdicts import NOT, OPEN, REPRODUCED, RULES, Run, judge


def run(labels: dict[str, str], seed: int = 0, status: str = "finished", **numbers: Any) -> Run:
    """A run with the figures that rules and tables read; `mass`, `kl`, ... are those at the end."""
    end = {
        "mass": 0.9, "KL": 1.0, "H_seq": 0.5, "others": 0.9, "others_min": 0.8, "other": 0.1, "H_beh": 0.4,
        "support@0.0001": 7.0, **{f"H_tok/{i}": 0.1 for i in range(1, 5)},
        **{f"{k}@0.0001": 1.0 for k in ("kept", "gained", "lost")}, **numbers.pop("end", {}),
    }  # fmt: skip
    start = {"mass": 1e-6, "H_seq": 2.0, "others": 1.0, **numbers.pop("start", {})}
    summary = {
        "start": start, "end": end, "p0": start["mass"], "lambda": 1.0, "hits": 5, "rewarded": 5,
        "steps": 128, "silent_groups": 1, "groups": 10, "success": end["mass"] >= 0.5,
        "takeoff": 64, "H_peak": 2.1, "others_H": 0.1, "key": "x", **numbers,
    }  # fmt: skip
    return Run(labels, seed, 0, summary, status)


PRIORS = {"never": 0.0, "1e-5": 1e-5, "1e-4": 1e-4, "1e-3": 1e-3, "1e-2": 1e-2}


def prior_runs(never_kl: float = 0.0, weak: int = 0, slow: bool = False) -> list[Run]:
    """Five seeds of E1; `weak` of the 1e-3 runs fail; `slow`: a larger prior takes off later."""
    runs = []
    for number, (level, p0) in enumerate(PRIORS.items()):
        for seed in range(5):
            fails = level == "never" or (level == "1e-3" and seed < weak)
            end = {"mass": 0.0 if fails else 0.99, "KL": never_kl if level == "never" else 5.0}
            takeoff = None if fails else (16 * number if slow else 128 - 16 * number)
            hits = 0 if level == "never" else 9
            runs.append(run({"prior": level}, seed, end=end, p0=p0, rewarded=hits, takeoff=takeoff))
    return runs


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [
        (prior_runs(), REPRODUCED),
        (prior_runs(weak=1), REPRODUCED),
        (prior_runs(weak=2), NOT),
        (prior_runs(never_kl=1e-9), NOT),
        (prior_runs(slow=True), NOT),
    ],
)
def test_the_rule_of_e1(runs: list[Run], verdict: str) -> None:
    assert judge("E1", runs, len(runs)).verdict == verdict  # type: ignore[union-attr]


def test_missing_cells_make_a_success_inconclusive_but_not_a_failure() -> None:
    assert judge("E1", prior_runs(), 26).verdict == OPEN  # type: ignore[union-attr]
    assert judge("E1", prior_runs(weak=2), 26).verdict == NOT  # type: ignore[union-attr]
    assert judge("E10", prior_runs(), 25) is None


def test_a_diverged_run_is_a_failure_whatever_its_mass() -> None:
    runs = prior_runs()
    broken = [
        Run(r.labels, r.seed, 0, r.summary, "diverged") if r.labels["prior"] == "1e-2" else r for r in runs
    ]
    assert judge("E1", broken, len(broken)).verdict == NOT  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("partial", "step", "p0", "verdict"),
    [(3, 3, 1e-7, REPRODUCED), (0, 3, 1e-7, REPRODUCED), (0, 2, 1e-7, NOT), (3, 3, 1e-4, OPEN)],
)
def test_the_rule_of_e3(partial: int, step: int, p0: float, verdict: str) -> None:
    runs = [
        run(
            {"prior": "never", "reward": reward},
            seed,
            start={"mass": p0},
            end={"mass": 0.9 if seed < wins else 0.0},
        )
        for reward, wins in (("exact", 0), ("partial", partial), ("step", step))
        for seed in range(3)
    ]
    assert judge("E3", runs, len(runs)).verdict == verdict  # type: ignore[union-attr]


def narrow_and_broad(gap: float, others: float, noise: float) -> list[Run]:
    rng = np.random.default_rng(0)
    runs = []
    for seed in range(6):
        jitter = noise * rng.normal(size=2)
        base = {"algorithm": "clip"}
        runs.append(
            run(
                {"prompts": "1", "breadth": "1", **base}, seed, end={"H_seq": 1.0 + jitter[0], "others": 0.99}
            )
        )
        end = {"H_seq": 1.0 + gap, "others": others + 0.1 * jitter[1]}
        runs.append(run({"prompts": "100", "breadth": "9", **base}, seed, end=end))
    return runs


@pytest.mark.parametrize(
    ("gap", "others", "noise", "verdict"),
    [(1.0, 0.8, 0.1, REPRODUCED), (-1.0, 0.8, 0.1, NOT), (1.0, 0.8, 4.0, OPEN), (1.0, 0.99, 3.0, OPEN)],
)
def test_the_rule_of_e5_asks_for_intervals(gap: float, others: float, noise: float, verdict: str) -> None:
    runs = narrow_and_broad(gap, others, noise)
    found = judge("E5", runs, len(runs))
    assert found is not None and found.verdict == verdict
    assert len(found.numbers["dH narrow - broad"]) == 3


def test_the_rule_of_e7() -> None:
    heights = {"base": (2.0, 1.0), "SFT+": (2.3, 0.99), "SFT-100": (0.1, 0.74), "RL": (0.15, 0.93)}
    runs = [
        run({"stage": stage}, seed, end={"H_seq": h, "others": o + 0.001 * seed})
        for stage, (h, o) in heights.items()
        for seed in range(3)
    ]
    assert judge("E7", runs, 12).verdict == REPRODUCED  # type: ignore[union-attr]
    worse = [
        r if r.labels["stage"] != "RL" else run(r.labels, r.seed, end={"H_seq": 0.15, "others": 0.5})
        for r in runs
    ]
    assert judge("E7", worse, 12).verdict == NOT  # type: ignore[union-attr]


def test_the_rule_of_e13() -> None:
    def biased(start: str, seed: int, bias: float) -> Run:
        figures: dict[str, Any] = {"256": {"chain_rule/bias": bias}}
        return run({"start": start}, seed, "finished", **figures)

    runs = [biased("never", seed, bias) for seed, bias in enumerate((0.01, -0.015))]
    assert judge("E13", runs, 2).verdict == REPRODUCED  # type: ignore[union-attr]
    runs.append(biased("1e-2", 0, -0.021))
    assert judge("E13", runs, 3).verdict == NOT  # type: ignore[union-attr]


def test_every_rule_says_in_words_what_it_asks() -> None:
    assert all(len(rule.__doc__ or "") > 40 for rule in RULES.values())


def test_no_runs_are_never_a_result() -> None:
    for name, rule in RULES.items():
        assert rule([]).verdict == OPEN, name


def test_tables_show_the_originals_figures_beside_ours() -> None:
    first, everything, _ = tables_of("E1", "prior mass", prior_runs())
    assert "0/5 [0.00, 0.43]" in first.markdown() and "*Qwen2-7B base*" in first.markdown()
    assert len(everything.rows) == 5 and all(len(row) == len(everything.header) for row in everything.rows)


def test_arms_are_compared_pair_by_pair_and_adjusted_within_the_experiment() -> None:
    runs = [
        run({"reward": reward, "prior": "never"}, seed, end={"mass": mass + seed / 100})
        for reward, mass in (("exact", 0.0), ("partial", 0.9), ("lev", 0.1))
        for seed in range(6)
    ]
    (table,) = comparisons("E3", "rewards", runs[:-1])
    partial, lev = table.rows
    assert partial[:7] == ["partial, never", "exact", "6", "6/6", "0/6", "0.9 [0.9, 0.9]", "0 [0, 0]"]
    assert partial[7:] == ["0.031", "0.062"] and lev[2:5] == ["5", "0/5", "0/5"] and lev[7:] == ["1", "1"]
    assert comparisons("E3", "rewards", runs[:6]) == []


def test_the_slope_over_prompts_is_by_seed() -> None:
    runs = [
        run(
            {"prompts": n, "breadth": breadth, "algorithm": "clip"},
            seed,
            end={"H_seq": 2.0 + slope * i + seed},
        )
        for breadth, slope in (("1", 0.5), ("9", -0.25))
        for i, n in enumerate(("1", "10", "100"))
        for seed in range(3)
    ]
    text = slopes(runs)
    assert "1 domain, clip: 0.5 [0.5, 0.5] nats" in text and "9 domains, clip: -0.25 [-0.25, -0.25]" in text
    assert slopes(runs[:3]) == ""


def test_entropy_and_covariance_are_set_side_by_side_where_the_policy_moved() -> None:
    moved = [{"KL": 0.1 * i, "H_seq": 2.0 - 0.01 * i * i, "train/covariance": 0.1 * i} for i in range(13)]
    still = [{"KL": 0.0, "H_seq": 2.0, "train/covariance": -1.0}] * 5
    text = drive([moved, still])
    assert "over 12 stretches" in text and "correlation -1.00, signs opposite in 100%" in text
    assert drive([still]) == ""


# --- statistics ------------------------------------------------------------------------------------------


def test_wilson_against_published_values() -> None:
    found = stats.wilson(4, 5)
    assert (found.low, found.high) == pytest.approx((0.3755, 0.9638), abs=1e-4)
    assert stats.wilson(0, 5).low == 0.0 and stats.wilson(0, 0).high == 1.0


def test_mcnemar_against_the_binomial() -> None:
    from scipy.stats import binomtest

    first, second = [True] * 8 + [False] * 4, [False] * 7 + [True] + [True] + [False] * 3
    assert stats.mcnemar(first, second) == pytest.approx(binomtest(1, 8).pvalue)
    assert stats.mcnemar([True], [True]) == 1.0


def test_spearman_against_scipy_and_holm_by_hand() -> None:
    from scipy.stats import spearmanr

    x, y = [1, 2, 2, 4, 5, 9], [3, 1, 4, 4, 0, -2]
    assert stats.spearman(x, y) == pytest.approx(spearmanr(x, y).statistic)
    assert math.isnan(stats.spearman([1, 1], [2, 3]))
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_the_bootstrap_covers_and_widens_with_trunks() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(60):
        values = rng.normal(1.0, 1.0, 12)
        found = stats.bootstrap({0: values.tolist()}, seed=trial, draws=400)
        covered += found.low <= 1.0 <= found.high
    assert covered > 48
    apart = stats.bootstrap({0: [0.0, 0.1], 1: [1.0, 1.1], 2: [2.0, 2.1]}, draws=500)
    together = stats.bootstrap({0: [0.0, 0.1, 1.0, 1.1, 2.0, 2.1]}, draws=500)
    assert apart.high - apart.low > together.high - together.low


def test_lambda_fifty_finds_the_threshold() -> None:
    rng = np.random.default_rng(0)
    lambdas = 10 ** rng.uniform(-2, 3, 200)
    success = rng.random(200) < 1 / (1 + np.exp(-4 * (np.log10(lambdas) - 0.5)))
    found = stats.lambda_fifty(lambdas.tolist(), success.tolist())
    assert 10**0.3 < found.value < 10**0.7 and found.low < 10**0.5 < found.high
    assert math.isnan(stats.lambda_fifty([1.0, 2.0], [True, True]).value)


def test_preflight_gives_its_advice_by_lambda() -> None:
    def at(scale: float) -> str:
        return preflight(lambda t: np.full(100, scale * t), 1000, 8).advice

    assert [at(1e-4), at(5e-3), at(0.05)] == ["no signal", "luck", "go"]
    found = preflight(lambda t: np.array([0.5 * t] + [0.0] * 199), 800, 4, sampled=(0, 100))
    assert found.expected_hits == pytest.approx(2.0) and found.no_hit == pytest.approx(math.exp(-2))
    assert found.top_share == 1.0 and found.groups_with_signal == pytest.approx((1 - 2 * 0.5**4) / 200)
    assert found.by_temperature["0.4"] == pytest.approx(0.4 * found.by_temperature["1"])
    assert "at most 0.03" in found.text() and "advice" in found.text()
