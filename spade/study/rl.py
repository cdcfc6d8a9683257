"""Reinforcement learning on one task: sample groups, reward, advantages, one or more updates.

Every random decision (pool order, sampling, rewards, order of minibatches) has a generator of its own, so
that a cell repeats bit for bit on one machine.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from spade.learn.batch import PackedBatch, token_weights
from spade.learn.loss import policy_loss
from spade.rng import child_seed
from spade.study.ladder import Rung, advantages, rung_named
from spade.study.lm import TinyLM
from spade.study.measure import right_mass
from spade.study.packed import group_logprobs, sample_groups
from spade.study.rewards import Group, reward_named
from spade.study.settings import RLSettings
from spade.study.tasks import Bools, Family, Floats, Ints, Prompts, is_right, joined


class Pool:
    """The prompts of a run. Small pools repeat within a batch, large ones do not until they are used up."""

    def __init__(self, family: Family, settings: RLSettings) -> None:
        domains = family.domains[: settings.breadth]
        total = max(settings.prompts, len(domains))
        counts = [total // len(domains) + (i < total % len(domains)) for i in range(len(domains))]
        wanted = [
            (d, self._shuffled(family, d, n, settings.seed)) for d, n in zip(domains, counts, strict=True)
        ]
        self.prompts = joined([prompts for _, prompts in wanted])
        self._rng = np.random.default_rng(child_seed(settings.seed, "order"))
        self._left: list[int] = []

    @staticmethod
    def _shuffled(family: Family, domain: str, count: int, seed: int) -> Prompts:
        """`count` of the domain's first thousand training prompts, which ones being the seed's choice."""
        if family.name == "quote":
            return family.prompts(domain, "train", 1)
        every = family.prompts(domain, "train", max(count, 1000))
        order = np.random.default_rng(child_seed(seed, "pool", domain)).permutation(len(every))
        return every.take(order[:count])

    def draw(self, count: int) -> Prompts:
        """The prompts of the next step."""
        rows: list[int] = []
        while len(rows) < count:
            if not self._left:
                self._left = self._rng.permutation(len(self.prompts)).tolist()
            taken = count - len(rows)
            rows, self._left = rows + self._left[:taken], self._left[taken:]
        return self.prompts.take(rows)


@dataclass(slots=True)
class StepStats:
    """What one step saw."""

    reward: float
    hits: int
    """Right responses."""
    rewarded: int
    """Responses with a reward above 0."""
    silent: int
    """Groups without any advantage."""
    groups: int
    grad_norm: float
    clipped_low: float
    clipped_high: float
    """Shares of letters whose ratio is outside the clip, in the last update; of groups with an advantage."""
    covariance: float
    """cov(log-probability, advantage) over responses, which drives the change of entropy (2505.22617)."""
    finite: bool
    moved: bool
    """Whether the weights were touched."""


class RLRun:
    """A policy in training."""

    def __init__(self, model: TinyLM, family: Family, settings: RLSettings) -> None:
        self.model, self.family, self.settings = model, family, settings
        self.rung: Rung = rung_named(settings.algorithm)
        self.reward = reward_named(settings.reward)
        self.pool = Pool(family, settings)
        self._cfg = self.rung.learner()
        self._every_group = self.rung.kl > 0 or self.rung.entropy_bonus > 0
        """Whether groups without an advantage have a gradient, too."""
        self._reference = copy.deepcopy(model).requires_grad_(False) if self.rung.kl > 0 else None
        self._sampling = torch.Generator().manual_seed(child_seed(settings.seed, "sampling"))
        self._coins = np.random.default_rng(child_seed(settings.seed, "reward"))
        self._parts = np.random.default_rng(child_seed(settings.seed, "parts"))
        self._optimiser = torch.optim.AdamW(
            model.parameters(), lr=settings.lr, betas=(0.9, 0.99), weight_decay=0.0, fused=True
        )

    def expected_hits(self) -> float:
        """lambda: right responses to be expected of the whole budget of the policy as it is, exactly, by the
        mean mass over the pool."""
        s = self.settings
        return (
            float(right_mass(self.model, self.family, self.pool.prompts, s.temperature).mean()) * s.rollouts
        )

    def step(self) -> StepStats:
        """Sample, reward, update. Without any advantage (and no term that needs none) nothing moves."""
        s = self.settings
        prompts = self.pool.draw(s.batch)
        ids = torch.from_numpy(prompts.ids_BP)
        length = prompts.target_BL.shape[1]
        y, old = sample_groups(
            self.model, ids, self.family.alphabet, length, s.group, s.temperature, self._sampling
        )
        responses = y.numpy()
        rewards = self.reward(Group(prompts, responses, self.family.format_LM), self._coins)
        advantage = np.broadcast_to(advantages(rewards, self.rung.advantage), responses.shape)
        silent: Bools = np.asarray(~advantage.any((1, 2)))
        moving = not silent.all() or self._every_group
        norm, clips, finite = 0.0, (0.0, 0.0), True
        for rows in self._minibatches() if moving else ():
            used = rows if self._every_group else loud(rows, silent)
            norm, clips, finite = self._update(ids[used], y[used], old[used], advantage[used], len(rows))
            if not finite:
                break
        per_response = rewards if rewards.ndim == 2 else rewards.sum(-1)
        flat = (old.sum(-1).numpy().ravel(), advantage.mean(-1).ravel())
        return StepStats(
            reward=float(per_response.mean()),
            hits=int(
                is_right(np.repeat(prompts.allowed_BLM, s.group, 0), responses.reshape(-1, length)).sum()
            ),
            rewarded=int((per_response > 0).sum()),
            silent=int(silent.sum()),
            groups=len(silent),
            grad_norm=norm,
            clipped_low=clips[0],
            clipped_high=clips[1],
            covariance=float(np.mean((flat[0] - flat[0].mean()) * (flat[1] - flat[1].mean()))),
            finite=finite,
            moved=moving,
        )

    def _minibatches(self) -> Iterator[Ints]:
        """Groups of the batch in as many shuffled parts as the rung makes updates, none of them empty."""
        count = self.settings.batch
        order = np.arange(count) if self.rung.minibatches == 1 else self._parts.permutation(count)
        parts = np.array_split(order, self.rung.minibatches)
        yield from (np.sort(part) for part in parts if len(part))

    def _update(
        self,
        ids_BP: Tensor,
        y_BGL: Tensor,
        old_BGL: Tensor,
        advantage_BGL: Floats,
        groups: int | None = None,
    ) -> tuple[float, tuple[float, float], bool]:
        loss, clips = self.loss(ids_BP, y_BGL, old_BGL, advantage_BGL, groups)
        self._optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0))
        finite = bool(np.isfinite(norm))
        if finite:
            self._optimiser.step()
        return norm, clips, finite

    def loss(
        self,
        ids_BP: Tensor,
        y_BGL: Tensor,
        old_BGL: Tensor,
        advantage_BGL: Floats,
        groups: int | None = None,
    ) -> tuple[Tensor, tuple[float, float]]:
        """The rung's loss of one minibatch of `groups` groups, of which these `B` have a gradient
        (default: there are no others), and the shares of letters below and above the clip."""
        letters, heat = self.family.alphabet, self.settings.temperature
        logp_BGLM = group_logprobs(self.model, ids_BP, y_BGL, letters, heat)
        logp = logp_BGLM.gather(-1, y_BGL[..., None]).flatten()
        reference = None
        if self._reference is not None:
            with torch.no_grad():
                theirs = group_logprobs(self._reference, ids_BP, y_BGL, letters, heat)
                reference = theirs.gather(-1, y_BGL[..., None]).flatten()
        several = self.rung.minibatches > 1
        every, places = (groups or len(y_BGL)) * y_BGL.shape[1], y_BGL.shape[2]
        weights = letter_weights(self._cfg.loss, every, places)[: logp.numel()]
        loss, _ = policy_loss(
            logp,
            old_BGL.flatten(),
            torch.from_numpy(advantage_BGL.astype(np.float32)).flatten(),
            torch.from_numpy(weights.astype(np.float32)),
            self._cfg,
            old_N=old_BGL.flatten() if several else None,
            reference_N=reference,
        )
        if self.rung.entropy_bonus > 0:
            entropy = -(logp_BGLM.exp() * logp_BGLM).sum(-1).mean()
            loss = loss - self.rung.entropy_bonus * entropy
        ratio = torch.exp(logp.detach() - old_BGL.flatten())
        low = float((ratio < 1 - self.rung.clip_low).float().mean())
        return loss, (low, float((ratio > 1 + self.rung.clip_high).float().mean()))


def loud(rows: Ints, silent_B: Bools) -> Ints:
    """Those of `rows` whose group has an advantage: the others add nothing to loss and gradient, exactly. One
    is kept in any case, so that the optimiser takes the same step (momentum) as with all of them."""
    chosen = rows[~silent_B[rows]]
    return chosen if len(chosen) else rows[:1]


@lru_cache
def letter_weights(kind: str, responses: int, length: int) -> Floats:
    """`token_weights` of the named loss for `responses` episodes of `length` letters, flat; read only."""
    batch = PackedBatch(
        ids_BT=np.zeros((responses, 1), np.int64),
        mask_BT=np.ones((responses, 1), np.bool_),
        old_logprobs_BT=np.zeros((responses, 1), np.float32),
        advantages_B=np.zeros(responses),
        weights_B=np.ones(responses),
        roles=("agent",) * responses,
        rows=tuple(range(responses)),
        lengths_B=np.full(responses, length),
        starts_B=np.zeros(responses, np.int64),
        episode_tokens_B=np.full(responses, length),
    )
    weights = np.repeat(token_weights(batch, kind, responses, responses * length), length)
    weights.flags.writeable = False
    return weights
