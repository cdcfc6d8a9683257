"""The algorithm ladder: rungs by name, made of the trainer's own advantages and losses.

    reinforce    A = r                              -A log pi
    baseline     A = r - mean of the batch          the same
    group        A = r - mean of the group          the same
    grpo         A = (r - mean) / (std + 1e-4)      ratio of new to old policy; one update, so it is 1
    clip         as grpo, 4 updates, clip 0.2 / 0.2
    clip-high    as clip, 0.2 / 0.28
    kl-0.01, kl-0.1    as grpo, + beta * k3 to the start
    entropy      as grpo, + 0.01 * entropy of the policy

Advantages come from `spade.learn.advantages`, token weights from `spade.learn.batch`, the loss from
`spade.learn.loss`, all selected by name; a test holds the study's update against the trainer's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spade.config import LearnerConfig
from spade.errors import InputError
from spade.learn.advantages import agent_advantages
from spade.study.tasks import Floats

STD_FLOOR = 1e-4


@dataclass(frozen=True, slots=True)
class Rung:
    """One algorithm. `advantage` is `none`, `batch` or a kind of `agent_advantages`."""

    advantage: str = "zscore"
    loss: str = "grpo"
    clip_low: float = 0.2
    clip_high: float = 0.28
    minibatches: int = 1
    kl: float = 0.0
    entropy_bonus: float = 0.0

    def learner(self) -> LearnerConfig:
        """Settings of `policy_loss`. Sampler and learner are one model here: no importance weight."""
        return LearnerConfig(
            loss=self.loss,  # type: ignore[arg-type]
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            kl=self.kl,
            tis_max=0.0,
        )


LADDER: dict[str, Rung] = {
    "reinforce": Rung("none", "reinforce"),
    "baseline": Rung("batch", "reinforce"),
    "group": Rung("mean", "reinforce"),
    "grpo": Rung(),
    "clip": Rung(clip_high=0.2, minibatches=4),
    "no-clip": Rung(clip_low=1.0, clip_high=1e9, minibatches=4),
    "clip-high": Rung(minibatches=4),
    "kl-0.01": Rung(kl=0.01),
    "kl-0.1": Rung(kl=0.1),
    "entropy": Rung(entropy_bonus=0.01),
}
"""Rungs by name; `no-clip` makes the four updates of `clip` with bounds that never bind."""


def rung_named(name: str) -> Rung:
    """A rung. Raises `InputError` for an unknown name."""
    if name not in LADDER:
        raise InputError(f"there is no algorithm '{name}'; choose one of {', '.join(LADDER)}.")
    return LADDER[name]


def advantages(rewards: Floats, kind: str) -> Floats:
    """Advantages of a batch of groups, shape (B, G, L) in both cases.

    `rewards` (B, G) is one number a response, the same advantage for each of its places; (B, G, L) is one a
    place, and an advantage is taken from the reward to go, place by place.
    """
    to_go_BGL = rewards[..., None] if rewards.ndim == 2 else np.cumsum(rewards[..., ::-1], -1)[..., ::-1]
    out = np.empty(to_go_BGL.shape)
    for place in range(to_go_BGL.shape[-1]):
        returns_BG = to_go_BGL[..., place]
        if kind == "none":
            out[..., place] = returns_BG
        elif kind == "batch":
            out[..., place] = agent_advantages(returns_BG, "mean").reshape(returns_BG.shape)
        else:
            for row, returns_G in enumerate(returns_BG):
                out[row, :, place] = agent_advantages(returns_G, kind, STD_FLOOR)
    return out
