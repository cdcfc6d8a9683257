"""Every reward on the whole output space of a prompt, against a slow reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from spade.errors import InputError
from spade.study.families import open_family
from spade.study.ladder import advantages
from spade.study.rewards import REWARDS, Group, reward_named
from spade.study.tasks import Family, Prompts, all_responses

RNG = np.random.default_rng(0)


def edit_distance(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    if not a or not b:
        return len(a) + len(b)
    if a[0] == b[0]:
        return edit_distance(a[1:], b[1:])
    return 1 + min(edit_distance(a[1:], b), edit_distance(a, b[1:]), edit_distance(a[1:], b[1:]))


def whole_space(name: str) -> tuple[Family, Prompts, np.ndarray]:
    family = open_family(name)
    return family, family.prompts(family.domains[0], "probe", 1), all_responses(len(family.alphabet))


def score(reward: str, name: str) -> tuple[np.ndarray, Prompts, np.ndarray, Family]:
    family, prompts, every = whole_space(name)
    group = Group(prompts, every[None], family.format_LM)
    return reward_named(reward)(group, np.random.default_rng(1))[0], prompts, every, family


def slow(reward: str, y: tuple[int, ...], prompts: Prompts, family: Family) -> float:
    target = tuple(prompts.target_BL[0].tolist())
    right = all(prompts.allowed_BLM[0, t, letter] for t, letter in enumerate(y))
    formatted = all(family.format_LM[t, letter] for t, letter in enumerate(y))
    lead = 0
    while lead < 4 and y[lead] == target[lead]:
        lead += 1
    milestones = 1.0 if right else sum((0.05, 0.05, 0.10, 0.15)[:lead])
    letters = len(family.alphabet)
    near = y[:3] == target[:3] and (y[3] - target[3]) % letters in (1, letters - 1)
    text, wanted = "".join(map(chr, y)), "".join(map(chr, target))
    found: dict[str, Callable[[], float]] = {
        "exact": lambda: float(right),
        "contain": lambda: 1.0 if right else 0.5 if wanted[:3] in text or wanted[1:] in text else 0.0,
        "partial": lambda: sum(a == b for a, b in zip(y, target, strict=True)) / 4,
        "lev": lambda: 1 - edit_distance(y, target) / 4,
        "milestone": lambda: milestones,
        "milestone+bonus": lambda: max(milestones, 0.6) if near else milestones,
        "format": lambda: float(formatted),
        "format+exact": lambda: 0.1 * formatted + 0.9 * right,
        "constant": lambda: 1.0,
        "inverted": lambda: 1.0 - right,
        "proxy": lambda: float(y[0] % 2 == 0),
    }
    return found[reward]()


GRADED = [
    "exact", "contain", "partial", "lev", "milestone", "milestone+bonus", "format", "format+exact",
    "constant", "inverted", "proxy",
]  # fmt: skip


@pytest.mark.parametrize("reward", GRADED)
@pytest.mark.parametrize("name", ["rules", "chain"])
def test_graded_rewards_equal_the_slow_reference_everywhere(reward: str, name: str) -> None:
    found, prompts, every, family = score(reward, name)
    assert found.shape == (len(every),) and found.min() >= 0 and found.max() <= 1
    expected = [slow(reward, tuple(y), prompts, family) for y in every.tolist()]
    assert found == pytest.approx(np.array(expected))


@pytest.mark.parametrize("reward", ["exact", "format", "format+exact"])
def test_format_errors_are_inside_the_enumerated_space(reward: str) -> None:
    found, prompts, every, family = score(reward, "strategy")
    expected = [slow(reward, tuple(y), prompts, family) for y in every.tolist()]
    assert found == pytest.approx(np.array(expected))
    assert 0 < (found > 0).sum() < len(every)


def test_step_pays_place_by_place_and_sums_to_partial() -> None:
    steps, prompts, every, _ = score("step", "rules")
    assert steps.shape == (len(every), 4)
    assert steps == pytest.approx((every == prompts.target_BL[0]) / 4)
    assert steps.sum(-1) == pytest.approx(score("partial", "rules")[0])


def test_majority_labels_the_group_itself() -> None:
    family, prompts, every = whole_space("rules")
    rng = np.random.default_rng(3)
    y = every[rng.integers(0, 3, (50, 8)) * 100]
    found = reward_named("majority")(Group(prompts.take([0] * 50), y, family.format_LM), RNG)
    for row, rewards in zip(y.tolist(), found, strict=True):
        counts = Counter(map(tuple, row))
        most = max(counts.values())
        winner = next(tuple(r) for r in row if counts[tuple(r)] == most)
        assert rewards.tolist() == [float(tuple(r) == winner) for r in row]


@pytest.mark.parametrize(("reward", "share"), [("random-0.1", 0.1), ("random", 0.5), ("random-0.9", 0.9)])
def test_random_rewards_do_not_look_at_the_response(reward: str, share: float) -> None:
    found, _, every, _ = score(reward, "rules")
    assert set(found.tolist()) == {0.0, 1.0}
    assert abs(found.mean() - share) < 4 * np.sqrt(share * (1 - share) / len(every))


@pytest.mark.parametrize("reward", ["constant", "random-prompt"])
def test_controls_have_no_advantage_within_a_group(reward: str) -> None:
    family, prompts, every = whole_space("rules")
    group = Group(prompts.take([0] * 6), np.broadcast_to(every[:8], (6, 8, 4)), family.format_LM)
    rewards = reward_named(reward)(group, np.random.default_rng(0))
    assert not advantages(rewards, "zscore").any() and not advantages(rewards, "mean").any()
    if reward == "random-prompt":
        assert {row[0] for row in rewards.tolist()} == {0.0, 1.0}


def test_every_reward_is_covered_here() -> None:
    other = {"step", "majority", "random-0.1", "random", "random-0.9", "random-prompt"}
    assert set(REWARDS) == other | set(GRADED)
    with pytest.raises(InputError, match="no reward 'fame'"):
        reward_named("fame")


def test_advantages_by_kind() -> None:
    rewards = np.array([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    assert advantages(rewards, "none")[..., 0] == pytest.approx(rewards)
    assert advantages(rewards, "batch")[..., 0] == pytest.approx(rewards - rewards.mean())
    assert advantages(rewards, "mean")[..., 0] == pytest.approx(rewards - rewards.mean(1, keepdims=True))
    z = advantages(rewards, "zscore")[..., 0]
    std = np.sqrt(3) / 4
    assert z[0] == pytest.approx(np.array([0.75, -0.25, -0.25, -0.25]) / (std + 1e-4)) and not z[1].any()
    places = np.zeros((1, 2, 4))
    places[0, 0] = [0.25, 0.0, 0.25, 0.0]
    to_go = advantages(places, "none")
    assert to_go[0, 0] == pytest.approx([0.5, 0.25, 0.25, 0.0])
    assert not advantages(places, "mean")[0, :, 3].any()  # nothing to come is nothing to learn
