"""Scripted play of corpus programs: the mixture of modes that reinforcement learning later sharpens.

Each episode has one mode. An *expert* episode plays the strategy throughout. A *noisy* episode plays it with
probability `NOISY_EXPERT` per move and naively otherwise. Hinted episodes are expert far more often, which
is what makes a hint worth something; unhinted play contains the same skill at a lower propensity.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from spade.embedded.mechanics import SampledProgram, load

PLAIN_EXPERT = 0.25
HINTED_EXPERT = 0.9
NOISY_EXPERT = 0.2


@dataclass(frozen=True)
class Play:
    """One scripted episode: the first observation, then (action content, reply) pairs."""

    first: str
    moves: tuple[tuple[str, str], ...]
    value: float


def play(sampled: SampledProgram, rng: random.Random, expert_share: float, seed: int | None = None) -> Play:
    """Play one corpus program with a scripted player whose episode is expert with `expert_share`."""
    env = load(sampled.code)
    first, _ = env.reset(rng.randrange(2**31) if seed is None else seed)
    env.text = first
    expert = rng.random() < expert_share
    history: list[tuple[str, str]] = []
    for _ in range(env.max_turns):
        skilled = expert or rng.random() < NOISY_EXPERT
        player = sampled.mechanic.expert if skilled else sampled.mechanic.naive
        action = player(env, history, rng)
        wrapped = action if "(ToolEnv)" in sampled.code else f"\\boxed{{{action}}}"
        reply, reward, terminated, truncated, _ = env.step(wrapped)
        history.append((action, reply))
        if terminated or truncated:
            return Play(first, tuple(history), reward if terminated else 0.0)
    return Play(first, tuple(history), 0.0)
