"""Advantages of both roles: golden numbers, invariances, running baselines (method invariants 4 and 5)."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade.config import LearnerConfig
from spade.errors import ConfigError
from spade.learn import baselines
from spade.learn.advantages import (
    GROUP_KINDS,
    KINDS,
    SCALES,
    agent_advantages,
    designer_advantages,
    designer_scale,
    scaled_advantages,
)
from spade.learn.baselines import Baselines

finite = st.floats(-1, 1, allow_nan=False)


# --- advantages ----------------------------------------------------------------------------------------


def test_zscore_golden_values() -> None:
    got = agent_advantages([1, 0, 0, 1], "zscore", 0.1)
    assert np.abs(got - np.array([0.5, -0.5, -0.5, 0.5]) / 0.6).max() < 1e-9


def test_the_published_floor_is_reachable() -> None:
    got = agent_advantages([1, 0, 0, 1], "zscore", LearnerConfig(std_floor=1e-8).std_floor)
    assert np.abs(got - np.array([1, -1, -1, 1]) / (1 + 2e-8)).max() < 1e-12


def test_mean_and_leave_one_out_golden_values() -> None:
    assert agent_advantages([1, 0, 0, 0], "mean").tolist() == [0.75, -0.25, -0.25, -0.25]
    assert np.abs(agent_advantages([1, 0, 0, 0], "loo") - np.array([1, -1 / 3, -1 / 3, -1 / 3])).max() < 1e-9


@given(st.lists(finite, min_size=1, max_size=32), st.sampled_from(GROUP_KINDS))
def test_agent_advantages_sum_to_zero(values: list[float], kind: str) -> None:
    assert abs(agent_advantages(values, kind).sum()) < 1e-9


@given(finite, st.integers(1, 20), st.sampled_from(GROUP_KINDS))
def test_equal_groups_give_exact_zeros(value: float, n: int, kind: str) -> None:
    assert not agent_advantages([value] * n, kind).any()


@given(st.lists(finite, min_size=2, max_size=16), st.floats(-3, 3), st.sampled_from(GROUP_KINDS))
def test_a_shift_of_all_returns_changes_nothing(values: list[float], shift: float, kind: str) -> None:
    moved = agent_advantages([v + shift for v in values], kind)
    if np.ptp(values) == 0 or np.ptp(values) > 1e-6:  # below, rounding decides what is equal
        assert np.abs(moved - agent_advantages(values, kind)).max() < 1e-9


@given(st.lists(finite, min_size=1, max_size=16), st.randoms(use_true_random=False))
def test_order_within_a_group_is_no_matter(values: list[float], random: Any) -> None:
    order = random.sample(range(len(values)), len(values))
    for kind in GROUP_KINDS:
        straight, shuffled = (agent_advantages(v, kind) for v in (values, [values[i] for i in order]))
        assert np.abs(straight[order] - shuffled).max() < 1e-9


def test_running_baselines_use_the_mean_given() -> None:
    for kind in ("ema", "rae"):
        assert agent_advantages([1.0, 1.0], kind, baseline=0.25).tolist() == [0.75, 0.75]
        with pytest.raises(ValueError, match="running mean"):
            agent_advantages([1.0], kind)


def test_a_running_mean_moves_once_a_step_and_is_remembered() -> None:
    ema = Baselines(decay=0.5)
    assert ema.update({"p": [1, 0, 0, 0], "q": []}) == {"p": 0.25}  # the first step initialises
    assert ema.update({"p": [1, 1]}) == {"p": 0.625}  # 0.5 * 0.25 + 0.5 * 1
    again = Baselines(decay=0.5)
    again.load_state_dict(json.loads(json.dumps(ema.state_dict())))
    assert again.update({"p": [0.0]}) == {"p": 0.3125} and again.means != ema.means
    rae = Baselines(decay=0.95)
    rae.update({"plain/A": [0.4, 0.6], "hinted/A": [1.0]})
    assert rae.update({"plain/A": [1.0]})["plain/A"] == pytest.approx(0.95 * 0.5 + 0.05, abs=1e-12)
    assert rae.means["hinted/A"] == 1.0


def test_the_longest_unused_running_mean_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "CAPACITY", 2)
    ema = Baselines(0.5)
    for key in ("a", "b", "a", "c"):
        ema.update({key: [1.0]})
    assert list(ema.means) == ["a", "c"]


def test_names_agree_with_the_config() -> None:
    assert [LearnerConfig(advantage=k).advantage for k in KINDS] == list(KINDS)  # type: ignore[arg-type]
    assert [LearnerConfig(designer_scale=s).designer_scale for s in SCALES] == list(SCALES)  # type: ignore[arg-type]


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


def test_designer_scales_by_name() -> None:
    # centred: 0.5 -0.5 for A, 0.1 -0.1 for B; population variance (0.25 * 2 + 0.01 * 2) / 4 = 0.13
    rewards, skills = [1.0, 0.0, 0.6, 0.4], ["A", "A", "B", "B"]
    centred = np.array([0.5, -0.5, 0.1, -0.1])

    def got(scale: str) -> Any:
        return scaled_advantages(rewards, skills, scale, n_agent=96, every=4, std_floor=0.1)

    assert np.abs(got("none") - centred).max() < 1e-9
    assert np.abs(got("std") - centred / (math.sqrt(0.13) + 0.1)).max() < 1e-9
    assert np.abs(got("reference") - centred * 50).max() < 1e-9  # 96 / 4 * 4 = 96, capped
    with pytest.raises(ConfigError, match="reference"):
        got("loud")
    assert scaled_advantages([], [], "std", n_agent=0, every=1).size == 0


@given(st.lists(st.tuples(finite, st.sampled_from("ab")), min_size=1, max_size=12), st.floats(-2, 2))
def test_a_shift_within_a_skill_changes_no_design(rows: list[tuple[float, str]], shift: float) -> None:
    skills = [s for _, s in rows]
    moved = designer_advantages([r + shift * (s == "a") for r, s in rows], skills)
    assert np.abs(moved - designer_advantages([r for r, _ in rows], skills)).max() < 1e-9


def test_bad_numbers_and_names_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        agent_advantages([0.0, math.nan])
    with pytest.raises(ConfigError, match="zscore"):
        agent_advantages([0.0, 1.0], "median")
    with pytest.raises(ValueError, match="skills"):
        designer_advantages([1.0], [])
