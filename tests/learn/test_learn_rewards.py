"""Golden numbers of regret, plateau, blend, gate and advantages (method invariants 2 to 5)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade.config import RewardConfig
from spade.errors import ConfigError, FaultKind
from spade.learn.advantages import agent_advantages, designer_advantages, designer_scale
from spade.learn.regret import paired_regret, plateau
from spade.learn.rewards import (
    REWARDS,
    best_arm,
    blend,
    designer_reward,
    learnability,
    mean_and_error,
    regret_lcb,
    skill_gate,
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


def test_lower_bound_of_regret() -> None:
    assert regret_lcb(Regret(0.5, 0.2, 8, 0), 1.5) == pytest.approx(0.2, abs=1e-12)
    assert regret_lcb(Regret(0.5, 0.4, 8, 0), 1.5) == 0.0
    assert regret_lcb(Regret(1.0, math.nan, 1, 0), 1.0) == 0.0


def test_learnability_peaks_at_one_half() -> None:
    assert [learnability(p) for p in (0.0, 0.25, 0.5, 1.0, -0.5)] == [0.0, 0.1875, 0.25, 0.0, 0.0]
    assert learnability(math.nan) == 0.0


@pytest.mark.parametrize(
    ("name", "value"),
    [("blend", 1.0), ("regret", 0.3), ("regret_lcb", 0.2), ("solve_rate", 1.0), ("learnability", 0.25)],
)
def test_rewards_by_name_are_multiplied_by_the_gate(name: str, value: float) -> None:
    regret = Regret(0.3, 0.1, 8, 0)
    cfg = RewardConfig()
    assert designer_reward(name, regret=regret, plain_mean=0.5, cfg=cfg) == pytest.approx(value, abs=1e-9)
    half = designer_reward(name, regret=regret, plain_mean=0.5, cfg=cfg, gate=0.5)
    assert half == pytest.approx(value / 2, abs=1e-9)


def test_reward_names_agree_with_the_config_and_an_unknown_one_is_refused() -> None:
    for name in REWARDS:
        assert RewardConfig(type=name).type == name  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="learnability"):
        designer_reward("luck", regret=Regret(0, 0, 0, 0), plain_mean=0.5, cfg=RewardConfig())


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


# --- advantages ----------------------------------------------------------------------------------------


def test_zscore_golden_values() -> None:
    got = agent_advantages([1, 0, 0, 1], "zscore", 0.1)
    assert np.abs(got - np.array([0.5, -0.5, -0.5, 0.5]) / 0.6).max() < 1e-9


def test_mean_and_leave_one_out_golden_values() -> None:
    assert agent_advantages([1, 0, 0, 0], "mean").tolist() == [0.75, -0.25, -0.25, -0.25]
    assert np.abs(agent_advantages([1, 0, 0, 0], "loo") - np.array([1, -1 / 3, -1 / 3, -1 / 3])).max() < 1e-9


@given(st.lists(finite, min_size=1, max_size=32), st.sampled_from(["zscore", "mean", "loo"]))
def test_agent_advantages_sum_to_zero(values: list[float], kind: str) -> None:
    assert abs(agent_advantages(values, kind).sum()) < 1e-9


@given(finite, st.integers(1, 20), st.sampled_from(["zscore", "mean", "loo"]))
def test_equal_groups_give_exact_zeros(value: float, n: int, kind: str) -> None:
    assert not agent_advantages([value] * n, kind).any()


def test_designer_advantages_are_centred_per_skill_and_scaled() -> None:
    got = designer_advantages([1.0, 0.4, 0.6, 0.2, 0.3], ["a", "b", "a", "b", "c"], 32.0)
    assert np.abs(got - np.array([6.4, 3.2, -6.4, -3.2, 0.0])).max() < 1e-9


@given(st.lists(st.tuples(finite, st.sampled_from("abc")), max_size=24))
def test_designer_advantages_sum_to_zero_within_each_skill(rows: list[tuple[float, str]]) -> None:
    skills = [s for _, s in rows]
    got = designer_advantages([r for r, _ in rows], skills, 50.0)
    for skill in set(skills):
        assert abs(sum(a for a, s in zip(got, skills, strict=True) if s == skill)) < 1e-9


def test_scale_and_its_cap() -> None:
    assert designer_scale(192, 24, 4) == pytest.approx(32, abs=1e-9)
    assert designer_scale(192, 24, 8) == pytest.approx(50, abs=1e-9)
    assert designer_scale(192, 0, 4) == 0.0


def test_bad_numbers_and_names_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        agent_advantages([0.0, math.nan])
    with pytest.raises(ConfigError, match="zscore"):
        agent_advantages([0.0, 1.0], "median")
    with pytest.raises(ValueError, match="skills"):
        designer_advantages([1.0], [])
