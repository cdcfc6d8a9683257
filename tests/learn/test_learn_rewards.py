"""Golden numbers of regret, plateau, blend, gate and advantages (method invariants 2 to 5)."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade.config import DesignConfig, RewardConfig
from spade.errors import ConfigError, FaultKind
from spade.learn.gate import best_arm, gated, mean_and_error, skill_gate
from spade.learn.potential import SkillMeans
from spade.learn.regret import paired_regret, plateau, window_regret
from spade.learn.rewards import (
    REWARDS,
    Evidence,
    blend,
    learnability,
    learning_potential,
    micro_lp,
    micro_lp_slope,
    raw_reward,
    regret_lcb,
    regret_only,
    shaped,
    variance,
)
from spade.types import Fault, Outcome, Regret, Scored

FAULT = Fault(FaultKind.INFRASTRUCTURE, "play", "lost")
finite = st.floats(-1, 1, allow_nan=False)


def scored(*values: float) -> list[Outcome]:
    return [Scored(v, v == 1.0) for v in values]


# --- regret --------------------------------------------------------------------------------------------


def test_regret_is_the_mean_paired_difference() -> None:
    got = paired_regret(scored(1, 1, 0, 1), scored(0, 1, 0, 0))
    assert got.mean == pytest.approx(0.5, abs=1e-12)
    assert got.stderr == pytest.approx(math.sqrt(1 / 3) / 2, abs=1e-12)
    assert (got.n, got.faults) == (4, 0)


def test_a_fault_in_either_arm_drops_the_pair_and_changes_no_return() -> None:
    hinted: list[Outcome] = [*scored(1, 1), FAULT, *scored(1)]
    plain: list[Outcome] = [FAULT, *scored(0, 1, 1)]
    got = paired_regret(hinted, plain)
    assert (got.mean, got.n, got.faults) == (0.5, 2, 2)


def test_unequal_arms_pair_by_index_and_ignore_the_surplus() -> None:
    assert paired_regret(scored(1, 0), scored(0, 0, 1, 1)) == Regret(0.5, 0.5, 2, 0)


@pytest.mark.parametrize("n", [0, 1])
def test_stderr_needs_two_pairs(n: int) -> None:
    got = paired_regret(scored(*[1.0] * n), scored(*[0.0] * n))
    assert math.isnan(got.stderr) and got.mean == float(n) and got.n == n


@given(st.lists(finite, min_size=2, max_size=20))
def test_a_policy_that_ignores_hints_has_regret_exactly_zero(values: list[float]) -> None:
    got = paired_regret(scored(*values), scored(*values))
    assert got.mean == 0.0 and got.stderr == 0.0


def test_regret_of_the_whole_window_compares_unpaired_arms() -> None:
    got = window_regret([1, 1, 0, 0], [1, 0, 0, 0, 0, 0, 0, 1])
    # sample variances 1/3 and 3/14; stderr^2 = (1/3) / 4 + (3/14) / 8
    assert got.mean == pytest.approx(0.25, abs=1e-12)
    assert got.stderr == pytest.approx(math.sqrt(1 / 12 + 3 / 112), abs=1e-12)
    assert (got.n, got.faults) == (4, 0)
    assert window_regret([], [1.0]).n == 0
    assert math.isnan(window_regret([1.0], [0.0, 0.0]).stderr)


# --- plateau and blend ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("w", "value"),
    [(0.15, 0), (0.275, 0.5), (0.4, 1), (0.5, 1), (0.6, 1), (0.725, 0.5), (0.85, 0), (-1, 0), (1, 0)],
)
def test_plateau_anchor_values(w: float, value: float) -> None:
    assert plateau(w, 0.4, 0.6, 0.25) == pytest.approx(value, abs=1e-9)


def test_plateau_of_nothing_measured_is_zero_and_no_ramp_is_a_hard_edge() -> None:
    assert plateau(math.nan) == 0.0
    assert plateau(0.39, 0.4, 0.6, 0.0) == 0.0 and plateau(0.4, 0.4, 0.6, 0.0) == 1.0


@pytest.mark.parametrize(
    ("regret", "mean", "value"),
    [(1.0, 0.0, 0.4), (0.0, 0.5, 0.6), (0.15, 0.5, 1.0), (-0.3, 0.5, 0.6), (0.075, 0.275, 0.5)],
)
def test_blend_golden_values(regret: float, mean: float, value: float) -> None:
    assert blend(regret, mean) == pytest.approx(value, abs=1e-9)


@given(st.floats(-2, 2), st.floats(-1, 1))
def test_blend_stays_in_the_unit_interval(regret: float, mean: float) -> None:
    assert 0.0 <= blend(regret, mean) <= 1.0 + 1e-12


def test_general_blend_adds_progress_and_takes_off_distance_from_the_frontier() -> None:
    # 0.4 * 0.5 + 0.6 * 0.5 + 0.2 * (0.05 / 0.1) - 0.3 * ((0.275 - 0.5)^2 / 0.08)
    got = blend(0.075, 0.275, 0.05, weights=(0.4, 0.6, 0.2, 0.3))
    assert got == pytest.approx(0.5 + 0.1 - 0.3 * 0.050625 / 0.08, abs=1e-12)
    # what the public code does when nothing is overridden: regret unfloored, progress, no anchor
    assert blend(-0.3, 0.5, 0.1, weights=(0.5, 0, 0.5, 0), floor=False) == pytest.approx(-0.5, abs=1e-12)
    assert blend(-0.3, math.nan, math.nan, weights=(1, 0, 0, 0)) == 0.0


def test_lower_bound_of_regret() -> None:
    assert regret_lcb(Regret(0.5, 0.2, 8, 0), 1.5, prior=0) == pytest.approx(0.2, abs=1e-12)
    assert regret_lcb(Regret(0.5, 0.4, 8, 0), 1.5, prior=0) == 0.0
    assert regret_lcb(Regret(1.0, math.nan, 1, 0), 1.0) == 0.0


def test_shrunk_lower_bound_is_that_of_the_sample_with_the_added_pairs() -> None:
    played = [1.0, 0.0, 0.5, 1.0, 0.0, 1.0]
    regret = paired_regret(scored(*played), scored(*[0.0] * 6))
    grown = np.array([*played, 0.0, 0.0])
    expected = grown.mean() - 0.7 * grown.std(ddof=1) / math.sqrt(8)
    assert regret_lcb(regret, 0.7, 2.0) == pytest.approx(expected, abs=1e-12)
    # Two equal differences claim no certainty: 2 of 4 pairs at 1, mean 1/2, error sqrt(1/12).
    assert regret_lcb(Regret(1.0, 0.0, 2, 0), 1.0, 2.0) == pytest.approx(0.5 - math.sqrt(1 / 12), abs=1e-12)


@given(st.floats(-1, 1), st.floats(0, 1), st.integers(2, 64))
def test_the_lower_bound_never_exceeds_the_regret(mean: float, error: float, n: int) -> None:
    assert regret_lcb(Regret(mean, error, n, 0), 1.0, 2.0) <= max(0.0, mean) + 1e-12


def test_learnability_peaks_at_one_half() -> None:
    assert [learnability(p) for p in (0.0, 0.25, 0.5, 1.0, -0.5)] == [0.0, 0.1875, 0.25, 0.0, 0.0]
    assert learnability(math.nan) == 0.0


def test_progress_within_the_window() -> None:
    # four steps: early half 0, 1 pooled = 1/4, late half 2, 3 pooled = 3/4
    window = {0: [0.0, 0.0], 1: [0.0, 1.0], 2: [1.0, 0.0], 3: [1.0, 1.0]}
    assert micro_lp(window) == pytest.approx(0.5, abs=1e-12)
    # three steps: the middle one counts as late: (0.5 + 1) / 2 - 0
    assert micro_lp({0: [0.0], 1: [0.5], 2: [1.0]}) == pytest.approx(0.75, abs=1e-12)
    assert micro_lp({0: [1.0], 1: [0.0]}) == 0.0
    assert micro_lp({0: [1.0, 0.0]}) == micro_lp({}) == micro_lp({0: [1.0], 1: []}) == 0.0


def test_the_trend_is_a_weighted_least_squares_line() -> None:
    assert micro_lp_slope({0: [0.0], 1: [0.5], 2: [1.0]}) == pytest.approx(1.0, abs=1e-12)
    assert micro_lp_slope({0: [0.9], 1: [0.4]}) == pytest.approx(-0.5, abs=1e-12)
    assert micro_lp_slope({3: [1.0]}) == 0.0
    window = {0: [0.0, 1.0, 0.0], 2: [1.0], 3: [0.5, 1.0]}
    means = [np.mean(v) for v in window.values()]
    slope = np.polyfit(list(window), means, 1, w=np.sqrt([len(v) for v in window.values()]))[0]
    assert micro_lp_slope(window) == pytest.approx(3 * slope, abs=1e-9)


def test_variance_bonus_is_one_for_a_coin_toss() -> None:
    assert variance([1, 0, 1, 0]) == pytest.approx(1.0, abs=1e-12)
    assert variance([1, 1]) == pytest.approx(math.exp(-0.0625 / 0.02), abs=1e-12)
    assert variance([]) == 0.0


def test_learning_potential_measures_the_distance_from_the_slow_mean() -> None:
    means = SkillMeans(fast=0.98, slow=0.85)
    assert math.isnan(means.slow("A")) and learning_potential(0.3, means.slow("A")) == 0.0
    means.update([("A", 0.2), ("A", 0.6), ("B", 1.0)])  # the first value initialises both
    assert means.slow("A") == pytest.approx(0.4, abs=1e-12)
    assert means.metrics() == {"skill_gap/A": 0.0, "skill_gap/B": 0.0}
    means.update([("A", 0.8)])
    assert means.slow("A") == pytest.approx(0.15 * 0.4 + 0.85 * 0.8, abs=1e-12)
    gap = (0.02 * 0.4 + 0.98 * 0.8) - (0.15 * 0.4 + 0.85 * 0.8)
    assert means.metrics()["skill_gap/A"] == pytest.approx(gap, abs=1e-12)
    assert learning_potential(0.3, means.slow("A")) == pytest.approx(0.44, abs=1e-12)
    again = SkillMeans()
    again.load_state_dict(json.loads(json.dumps(means.state_dict())))
    assert again.means == means.means


SEEN = Evidence(Regret(0.3, 0.1, 8, 0), {0: [0.0, 0.5], 1: [0.5, 1.0]}, skill_mean=0.7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("blend", 1.0),
        ("regret", 0.3),
        ("regret_lcb", 0.2),
        ("learning_potential", 0.2),
        ("solve_rate", 1.0),
        ("micro_lp", 0.5),
        ("variance", math.exp(-((0.125 - 0.25) ** 2) / 0.02)),
        ("learnability", 0.25),
    ],
)
def test_rewards_by_name(name: str, value: float) -> None:
    cfg = RewardConfig(lcb_prior=0.0)
    assert raw_reward(name, SEEN, cfg) == pytest.approx(value, abs=1e-9)
    bonus = raw_reward(name, SEEN, RewardConfig(lcb_prior=0.0, variance_weight=0.5))
    assert bonus == pytest.approx(value + 0.5 * variance(SEEN.returns), abs=1e-9)


def test_reward_names_agree_with_the_config_and_an_unknown_one_is_refused() -> None:
    for name in REWARDS:
        assert RewardConfig(type=name).type == name  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="learnability"):
        raw_reward("luck", SEEN, RewardConfig())


def test_fields_of_the_config_reach_the_formulas() -> None:
    loser = Evidence(Regret(-0.3, 0.1, 8, 0), {0: [0.2]})
    assert raw_reward("regret", loser, RewardConfig()) == 0.0 == regret_only(-0.3)
    assert raw_reward("regret", loser, RewardConfig(regret_floor=False)) == -0.3
    assert raw_reward("blend", loser, RewardConfig(regret_floor=False)) == pytest.approx(
        0.4 * -2.0 + 0.6 * 0.2, abs=1e-12
    )
    general = RewardConfig(mlp_weight=1.0, mlp_scale=0.5, frontier_weight=1.0, frontier_scale=0.1)
    assert raw_reward("blend", SEEN, general) == pytest.approx(1.0 + 0.5 / 0.5, abs=1e-12)
    assert raw_reward("regret_lcb", SEEN, RewardConfig(lcb_z=2.0, lcb_prior=0)) == pytest.approx(0.1)
    assert raw_reward("solve_rate", SEEN, RewardConfig(band_low=0.6, band_high=0.7)) == pytest.approx(0.6)


# --- who pays ------------------------------------------------------------------------------------------


def test_devices_against_collapse_shape_the_reward() -> None:
    cfg = DesignConfig(novelty_weight=0.1, guide_weight=0.5, duplicate_penalty=0.3)
    # 0.8 * (1 - 0.5 * (1 - 0.6)) + 0.1 * 0.5
    assert shaped(0.8, cfg, novelty=0.5, guide=0.6) == pytest.approx(0.8 * 0.8 + 0.05, abs=1e-12)
    assert shaped(0.8, cfg) == 0.8
    assert shaped(-0.4, cfg, guide=0.0) == -0.4  # a bad opinion does not soften a penalty
    assert shaped(0.8, cfg, novelty=1.0, guide=0.0, duplicate=True) == pytest.approx(0.5, abs=1e-12)
    shift = DesignConfig(guide_weight=0.5, guide_mode="shift")
    assert shaped(0.8, shift, guide=0.1, novelty=1.0) == pytest.approx(0.6, abs=1e-12)
    assert shaped(0.8, DesignConfig(), novelty=0.5, guide=0.1) == 0.8  # both devices are off by default


# --- skill gate ----------------------------------------------------------------------------------------


def test_gate_golden_values() -> None:
    assert skill_gate(0.9, 0.0, 0.5, 0.0) == 1.0
    assert skill_gate(0.7, 0.0, 0.5, 0.0) == pytest.approx(0.5, abs=1e-9)
    assert skill_gate(0.6, 0.0, 0.5, 0.0) == pytest.approx(0.0, abs=1e-9)
    assert skill_gate(0.9, 0.06, 0.5, 0.08, z=2.0) == pytest.approx(0.5, abs=1e-9)


def test_gate_is_shut_by_a_missing_error() -> None:
    assert skill_gate(1.0, math.inf, 0.0, 0.0) == 0.0
    assert skill_gate(1.0, math.nan, 0.0, 0.0) == 0.0
    assert skill_gate(math.nan, 0.0, 0.0, 0.0) == 0.0


def test_the_gate_multiplies_rewards_but_softens_no_penalty() -> None:
    assert gated(0.8, 0.5) == 0.4 and gated(0.8, 0.0) == 0.0
    assert gated(-0.8, 0.0) == -0.8


def test_lower_bound_stops_a_game_of_luck_that_the_mean_lets_through() -> None:
    # One guess in four: skilled play and the blind floor both win a quarter of the plays.
    rng = np.random.default_rng(0)
    open_by_mean = open_by_bound = 0
    for _ in range(400):
        arms = [scored(*(rng.random(n) < 0.25).astype(float)) for n in (16, 8)]
        floor, floor_se = mean_and_error(scored(*(rng.random(20) < 0.25).astype(float)))
        open_by_mean += skill_gate(*best_arm(arms, 0.0), floor, floor_se, z=0.0) > 0
        open_by_bound += skill_gate(*best_arm(arms, 1.64), floor, floor_se, z=1.64) > 0
    assert open_by_mean > 100
    assert open_by_bound < 30


def test_error_of_unanimous_plays_is_not_zero() -> None:
    mean, error = mean_and_error(scored(*[1.0] * 8))
    assert mean == 1.0 and 0.05 < error < 0.2
    assert mean_and_error([FAULT]) == (0.0, math.inf)
