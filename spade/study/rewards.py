"""Reward functions: pure functions of prompts, a group of responses for each, and a random generator.

Axes: `_B` prompts, `_G` responses of one prompt, `_L` places. Rewards lie in [0, 1]. All but `step` give one
number a response, (B, G); `step` gives one a place, (B, G, L). What is graded is the distance to one right
response, `Prompts.target_BL`; `exact` accepts every right one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from spade.errors import InputError
from spade.study.tasks import Bools, Floats, Ints, Prompts

MILESTONES = (0.05, 0.05, 0.10, 0.15, 0.25)
"""Weights of the five milestones of the original study's judge; a right answer earns 1 instead."""
NEAR_MISS = 0.6
"""What the original study pays for the answer next to the right one."""
FORMAT_SHARE = 0.1
"""Part of `format+exact` that the format alone earns."""


class Group(NamedTuple):
    """What a reward function sees."""

    prompts: Prompts
    responses_BGL: Ints
    format_LM: Bools


Reward = Callable[[Group, np.random.Generator], Floats]


def exact(group: Group, rng: np.random.Generator) -> Floats:
    """1 if the response is right."""
    return np.asarray(_allowed(group).all(-1), np.float64)


def contain(group: Group, rng: np.random.Generator) -> Floats:
    """1 if right, 0.5 if the response holds all but one letter of the target in one run, else 0.

    The original pays 0.5 to 1 for a response that contains the quotation among other text; responses of
    fixed length have no room for other text, so that one letter may be missing at either end instead.
    """
    y_BGL, target_BL = group.responses_BGL, group.prompts.target_BL
    length = y_BGL.shape[-1]
    held = np.zeros(y_BGL.shape[:2], bool)
    for start in (0, 1):
        piece = target_BL[:, None, start : start + length - 1]
        for at in (0, 1):
            held |= (y_BGL[..., at : at + length - 1] == piece).all(-1)
    return np.maximum(exact(group, rng), 0.5 * held)


def partial(group: Group, rng: np.random.Generator) -> Floats:
    """Share of the places that hold the target's letter."""
    return np.asarray(_matches(group).mean(-1), np.float64)


def lev(group: Group, rng: np.random.Generator) -> Floats:
    """1 - edit distance to the target / length: the original's dense reward for quotations."""
    y_BGL, target_BL = group.responses_BGL, group.prompts.target_BL
    length = y_BGL.shape[-1]
    row = [np.full(y_BGL.shape[:2], j) for j in range(length + 1)]
    for i in range(1, length + 1):
        new = [np.full(y_BGL.shape[:2], i)]
        for j in range(1, length + 1):
            change = row[j - 1] + (y_BGL[..., i - 1] != target_BL[:, None, j - 1])
            new.append(np.minimum(np.minimum(row[j], new[j - 1]) + 1, change))
        row = new
    return np.asarray(1.0 - row[length] / length, np.float64)


def milestone(group: Group, rng: np.random.Generator) -> Floats:
    """1 if right; else weights of the leading places that match the target, and of the answer.

    Milestone i of the first four is that the first i letters match; the fifth is that the response is right,
    which earns 1 anyway, so that 0.35 is the most a wrong response gets.
    """
    reached = np.cumprod(_matches(group), -1)
    graded = (reached * np.array(MILESTONES[: reached.shape[-1]])).sum(-1)
    return np.asarray(np.where(exact(group, rng) > 0, 1.0, graded), np.float64)


def milestone_bonus(group: Group, rng: np.random.Generator) -> Floats:
    """`milestone`, and at least 0.6 for a response that misses the target by one in its last letter."""
    y_BGL, target_BL = group.responses_BGL, group.prompts.target_BL
    letters = group.format_LM.shape[1]
    gap = (y_BGL[..., -1] - target_BL[:, None, -1]) % letters
    near = _matches(group)[..., :-1].all(-1) & ((gap == 1) | (gap == letters - 1))
    return np.asarray(np.maximum(milestone(group, rng), NEAR_MISS * near), np.float64)


def step(group: Group, rng: np.random.Generator) -> Floats:
    """Reward of each place, (B, G, L): 1 / L where the target's letter stands. The learner sums what is to
    come (reward to go)."""
    matches = _matches(group)
    return np.asarray(matches / matches.shape[-1], np.float64)


def format_only(group: Group, rng: np.random.Generator) -> Floats:
    """1 if every place holds a letter the format allows there."""
    places = np.arange(group.responses_BGL.shape[-1])
    return np.asarray(group.format_LM[places, group.responses_BGL].all(-1), np.float64)


def format_exact(group: Group, rng: np.random.Generator) -> Floats:
    """A tenth for the format, the rest for a right response."""
    return FORMAT_SHARE * format_only(group, rng) + (1 - FORMAT_SHARE) * exact(group, rng)


def majority(group: Group, rng: np.random.Generator) -> Floats:
    """1 for the most frequent response of the group, the first of equals: the group labels itself."""
    y_BGL = group.responses_BGL
    same = (y_BGL[:, :, None] == y_BGL[:, None]).all(-1)
    winner = same.sum(-1).argmax(-1)
    return np.asarray(np.take_along_axis(same, winner[:, None, None], 1)[:, 0], np.float64)


def random_reward(share: float) -> Reward:
    """A coin for every response, 1 with probability `share`."""

    def reward(group: Group, rng: np.random.Generator) -> Floats:
        return np.asarray(rng.random(group.responses_BGL.shape[:2]) < share, np.float64)

    return reward


def random_prompt(group: Group, rng: np.random.Generator) -> Floats:
    """One coin for a whole group: a control, since advantages within a group vanish."""
    coins = rng.random((len(group.prompts), 1)) < 0.5
    return np.broadcast_to(coins, group.responses_BGL.shape[:2]).astype(np.float64)


def constant(group: Group, rng: np.random.Generator) -> Floats:
    """Always 1."""
    return np.ones(group.responses_BGL.shape[:2])


def inverted(group: Group, rng: np.random.Generator) -> Floats:
    """1 - `exact`."""
    return 1.0 - exact(group, rng)


def proxy(group: Group, rng: np.random.Generator) -> Floats:
    """1 if the first letter is even: something easy that has nothing to do with the task."""
    return np.asarray(group.responses_BGL[..., 0] % 2 == 0, np.float64)


REWARDS: dict[str, Reward] = {
    "exact": exact,
    "contain": contain,
    "partial": partial,
    "lev": lev,
    "milestone": milestone,
    "milestone+bonus": milestone_bonus,
    "step": step,
    "format": format_only,
    "format+exact": format_exact,
    "majority": majority,
    "random-0.1": random_reward(0.1),
    "random": random_reward(0.5),
    "random-0.9": random_reward(0.9),
    "random-prompt": random_prompt,
    "constant": constant,
    "inverted": inverted,
    "proxy": proxy,
}
"""Rewards by name."""


def reward_named(name: str) -> Reward:
    """A reward function. Raises `InputError` for an unknown name."""
    if name not in REWARDS:
        raise InputError(f"there is no reward '{name}'; choose one of {', '.join(REWARDS)}.")
    return REWARDS[name]


def _matches(group: Group) -> Bools:
    """Where the target's letter stands, (B, G, L)."""
    return np.asarray(group.responses_BGL == group.prompts.target_BL[:, None])


def _allowed(group: Group) -> Bools:
    """Where a letter of some right response stands, (B, G, L)."""
    return np.take_along_axis(group.prompts.allowed_BLM[:, None], group.responses_BGL[..., None], -1)[..., 0]
