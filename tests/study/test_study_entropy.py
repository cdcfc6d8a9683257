"""Entropy metrics against slow, independent implementations; the alarms step by step."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade.learn import entropy as lib
from spade.study.estimators import SIZES, estimate, path_entropies

WEIGHTS = st.lists(st.floats(1e-3, 1.0), min_size=6, max_size=6)


def logs(weights: list[float]) -> np.ndarray:
    return np.log(np.array(weights) / sum(weights))


@given(WEIGHTS, WEIGHTS)
def test_exact_figures_equal_plain_sums(a: list[float], b: list[float]) -> None:
    p, q = ([x / sum(w) for x in w] for w in (a, b))
    assert lib.entropy(logs(a)) == pytest.approx(-sum(x * math.log(x) for x in p), abs=1e-9)
    kl = sum(x * math.log(x / y) for x, y in zip(p, q, strict=True))
    back = sum(y * math.log(y / x) for x, y in zip(p, q, strict=True))
    assert lib.divergence(logs(a), logs(b)) == pytest.approx(kl, abs=1e-9)
    assert lib.divergence(logs(b), logs(a)) == pytest.approx(back, abs=1e-9)
    assert lib.total_variation(logs(a), logs(b)) == pytest.approx(
        max(sum(p[i] - q[i] for i in s) for n in range(7) for s in itertools.combinations(range(6), n)),
        abs=1e-9,
    )
    labels = np.array([[0, 1, 0, 2, 1, 0]])
    kinds = [p[0] + p[2] + p[5], p[1] + p[4], p[3]]
    assert lib.grouped(logs(a)[None], labels, 3)[0] == pytest.approx(kinds)


@given(WEIGHTS, WEIGHTS)
def test_mutual_information_is_what_remains_of_the_mean(a: list[float], b: list[float]) -> None:
    p, q = ([x / sum(w) for x in w] for w in (a, b))
    mean = [(x + y) / 2 for x, y in zip(p, q, strict=True)]
    h = [-sum(x * math.log(x) for x in r) for r in (mean, p, q)]
    assert lib.mutual_information(np.stack([logs(a), logs(b)])) == pytest.approx(
        h[0] - (h[1] + h[2]) / 2, abs=1e-9
    )


@given(WEIGHTS, WEIGHTS, st.floats(1.01, 50))
def test_coverage_is_the_mass_of_the_data_that_the_model_gives_too_rarely(
    a: list[float], b: list[float], ratio: float
) -> None:
    p, q = ([x / sum(w) for x in w] for w in (a, b))
    edge = any(abs(x / y / ratio - 1) < 1e-9 for x, y in zip(p, q, strict=True))
    slow = sum(x for x, y in zip(p, q, strict=True) if x / y >= ratio)
    assert edge or lib.coverage(np.array([p]), logs(b)[None], ratio) == pytest.approx(slow, abs=1e-9)
    assert lib.coverage(np.array([p]), logs(a)[None], ratio) == 0.0


def test_an_impossible_output_adds_nothing() -> None:
    sure = np.array([0.0, -np.inf])
    assert lib.entropy(sure) == 0.0 and lib.divergence(sure, np.log([0.5, 0.5])) == pytest.approx(math.log(2))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5), st.integers(1, 64))
def test_pass_at_k_equals_the_power(mass: list[float], k: int) -> None:
    slow = sum(1 - (1 - m) ** k for m in mass) / len(mass)
    assert lib.pass_at_k(mass, k) == pytest.approx(slow, abs=1e-9)


def test_pass_at_k_of_rare_outputs_does_not_round_to_zero() -> None:
    assert lib.pass_at_k([1e-18], 4) == pytest.approx(4e-18)


@given(st.integers(0, 8), st.integers(1, 8))
def test_sampled_pass_at_k_equals_the_count_of_subsets(wins: int, k: int) -> None:
    items = [True] * wins + [False] * (8 - wins)
    subsets = list(itertools.combinations(items, k))
    assert lib.sampled_pass_at_k(wins, 8, k) == pytest.approx(sum(any(s) for s in subsets) / len(subsets))


def test_support_counts_right_outputs_only() -> None:
    before, after = np.log([[0.5, 0.3, 0.1999, 1e-4]]), np.log([[0.7, 1e-4, 0.1, 0.1999]])
    right = np.array([[True, True, False, True]])
    assert lib.support(before, after, right, 0.01) == {"kept": 1, "gained": 1, "lost": 1}


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=20))
def test_counts_of_samples(items: list[str]) -> None:
    n = len(items)
    shares = [items.count(x) / n for x in set(items)]
    plug = -sum(p * math.log(p) for p in shares)
    assert lib.plug_in(items) == pytest.approx(plug, abs=1e-12)
    assert lib.miller_madow(items) == pytest.approx(plug + (len(shares) - 1) / (2 * n), abs=1e-12)
    assert lib.good_turing(items) == pytest.approx(1 - sum(items.count(x) == 1 for x in set(items)) / n)


def test_upper_bounds() -> None:
    assert lib.upper_bound(0, 10_000) == pytest.approx(3e-4)
    assert lib.upper_bound(5, 10) == pytest.approx(0.7634, abs=1e-3)  # Wilson, by hand


def test_path_entropies_sum_to_the_entropy() -> None:
    rng = np.random.default_rng(0)
    logp = np.log(rng.dirichlet(np.full(27, 0.5)))
    paths = path_entropies(logp, 3, 3)
    assert (np.exp(logp)[:, None] * paths).sum() == pytest.approx(float(lib.entropy(logp)))


def test_estimators_stay_within_their_bounds() -> None:
    rng = np.random.default_rng(1)
    logp = np.log(rng.dirichlet(np.full(4096, 0.01), size=4) + 1e-12)
    logp -= np.log(np.exp(logp).sum(-1, keepdims=True))
    bias = {n: {k: float(v.mean()) for k, v in estimate(logp, 8, 4, n, rng).items()} for n in SIZES[:3]}
    assert abs(bias[256]["chain_rule"]) < 0.02
    assert bias[16]["plug_in"] < bias[64]["plug_in"] < bias[256]["plug_in"] < 0
    assert all(bias[n]["plug_in"] < bias[n]["miller_madow"] for n in bias)
    assert 0 < bias[16]["coverage"] < bias[256]["coverage"] < 1


def test_the_chain_rule_has_the_smaller_error() -> None:
    rng = np.random.default_rng(2)
    logp = np.log(rng.dirichlet(np.full(512, 0.05), size=3) + 1e-12)
    logp -= np.log(np.exp(logp).sum(-1, keepdims=True))
    errors = estimate(logp, 8, 3, 64, rng)
    rmse = {k: float(np.sqrt((errors[k] ** 2).mean())) for k in ("chain_rule", "mean_nll")}
    assert rmse["chain_rule"] < rmse["mean_nll"]


# --- alarms ----------------------------------------------------------------------------------------------

START = {"entropy": 2.0, "pass": 0.6, "elsewhere": 0.7, "off_grammar": 0.02}


def raised(**now: float) -> set[str]:
    alarms = lib.Alarms()
    assert not any(alarms.check(START).values())
    return {name for name, on in alarms.check({**START, **now}).items() if on}


def test_each_alarm_needs_both_of_its_signs() -> None:
    assert raised() == set()
    assert raised(entropy=0.3) == set()  # sharp and still solving: this is what training is for
    assert raised(**{"entropy": 0.3, "pass": 0.4}) == {"collapse"}
    assert raised(entropy=3.0) == set()
    assert raised(entropy=3.0, elsewhere=0.5) == {"diffusion"}
    assert raised(off_grammar=0.09) == set()  # more than twice the start, but few
    assert raised(off_grammar=0.2) == {"off_grammar"}


def test_no_signal_needs_twenty_steps_in_a_row_and_survives_a_resume() -> None:
    alarms = lib.Alarms()
    for _ in range(19):
        alarms.step(1.0)
    assert not alarms.check(START)["no_signal"]
    again = lib.Alarms()
    again.load_state_dict(alarms.state_dict())
    again.step(0.96)
    assert again.check(START)["no_signal"] and again.start == START
    again.step(0.9)
    assert not again.check(START)["no_signal"]
