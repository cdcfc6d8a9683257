"""Experiment R1 on a checkpoint: choose the targets, train on each, measure at every step.

All parts are the project's own: responses come from the serving engine (`LocalPolicy`), rewards and
advantages from `spade.study`, the update from `CompactLearner` (all weights, full precision), after which the
engine gets the new weights. Entropies are over the whole vocabulary, along the responses of the step itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spade.config import LearnerConfig, ServingConfig
from spade.errors import InputError
from spade.files import file_sha256
from spade.learn.entropy import chain_rule, mean_nll, token_mean
from spade.learn.trainer import CompactLearner
from spade.rng import child_seed
from spade.serving.local import LocalPolicy
from spade.serving.policy import SamplingParams
from spade.study.hf import Opened
from spade.study.ladder import advantages, rung_named
from spade.study.quotes import CHAT_PROMPT, PROMPT, Candidate, candidates, pick_targets
from spade.study.real import RealCell
from spade.study.rewards import Group, reward_named
from spade.study.tasks import Floats, Ints, Prompts, one_hot
from spade.types import Message, Sample

ALGORITHM = "grpo"
"""Rung of the ladder: group-normalised advantages, one update a step."""


@dataclass(frozen=True)
class World:
    """A checkpoint, its prompt and the two targets."""

    name: str
    folder: Path
    weights: str
    prompt: str
    chat: bool
    prompt_ids: tuple[int, ...]
    targets: dict[str, Candidate]
    candidates: int
    temperature: float
    """Of the rollouts, at which the priors were taken."""

    def settings(self) -> dict[str, Any]:
        """What a cell says of it."""
        return {"model": self.name, "weights": self.weights, "prompt": self.prompt, "chat": self.chat}

    def text(self, rollouts: int) -> str:
        """The targets, their priors and what a budget can expect of them, a line each."""
        lines = [f"prompt  {self.prompt!r}{', as a chat' if self.chat else ''}"]
        for name, c in self.targets.items():
            prior = f"prior {c.prior:.3g} exact at T={self.temperature:g}"
            expected = f"lambda {c.prior * rollouts:.3g} of {rollouts:,} rollouts"
            lines.append(f"{name:<7} {c.text!r}: {len(c.ids)} tokens, {prior}, {expected}")
        return "\n".join([*lines, f"chosen from {self.candidates} candidates"])


def survey(
    opened: Opened, quotes: Sequence[str], prompt: str | None, chat: bool, temperature: float = 1.0
) -> World:
    """Score all candidates exactly and choose the targets. Raises `InputError` when none fits."""
    renderer = opened.chat.renderer
    text = prompt if prompt is not None else CHAT_PROMPT if chat else PROMPT
    ids = tuple(renderer.start([Message("user", text)]) if chat else renderer.raw_ids(text))
    if not ids:
        raise InputError("the prompt has no tokens; give another --prompt.")

    def score(rows: Sequence[tuple[int, ...]]) -> Sequence[Floats]:
        samples = [Sample(ids, row, (1,) * len(row), (0.0,) * len(row), 0.0, "agent") for row in rows]
        return [x.astype(np.float64) for x in opened.learner.score(samples, temperature)]

    found = candidates(quotes, renderer.encode, score)
    name = Path(opened.name).name
    digest = weights_digest(opened.folder)
    return World(name, opened.folder, digest, text, chat, ids, pick_targets(found), len(found), temperature)


def weights_digest(folder: Path) -> str:
    """Twelve hex digits that name the weights in a checkpoint folder."""
    files = sorted(folder.glob("*.safetensors"))
    return hashlib.sha256("".join(file_sha256(f) for f in files).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class RealStep:
    """What one step saw."""

    reward: float
    hits: int
    rewarded: int
    silent: int
    """Groups without any advantage."""
    groups: int
    grad_norm: float
    moved: bool
    finite: bool


class RealRun:
    """A real policy in training on one target. Call `close` at the end.

    Raises `InputError` if prompt and target do not fit the model's context.
    """

    def __init__(self, world: World, cell: RealCell, device: str = "auto", threads: int = 1) -> None:
        self.world, self.cell = world, cell
        self.target = world.targets[cell.prior].ids
        self.reward = reward_named(cell.reward)
        rung = rung_named(ALGORITHM)
        self._kind = rung.advantage
        own = {"lr": cell.lr, "betas": (0.9, 0.99), "autocast": "off", "entropy_tokens": 0}
        self._cfg: LearnerConfig = rung.learner().model_copy(update=own)
        self._device, self._threads = device, threads
        self.learner = CompactLearner(world.folder, self._cfg, device, threads=threads)
        serving = ServingConfig(device=device, dtype="float32", threads=threads)  # type: ignore[arg-type]
        self.policy = LocalPolicy.from_folder(world.folder, serving)
        if len(world.prompt_ids) + len(self.target) > self.policy.context_length:
            self.close()
            raise InputError(
                f"prompt and target have {len(world.prompt_ids)} + {len(self.target)} tokens, more than the "
                f"context of {self.policy.context_length}; give a shorter --prompt."
            )
        self._start: CompactLearner | None = None
        vocab = self.learner.model.config.vocab_size
        length, groups = len(self.target), cell.rollouts // cell.group
        target = np.tile(np.array(self.target), (groups, 1))
        none = np.zeros((groups, 0, length, vocab), bool)
        ids = np.tile(np.array(world.prompt_ids), (groups, 1))
        self._prompts = Prompts(ids, ("quote",) * groups, one_hot(target, vocab), target, none)
        self._format = np.ones((length, vocab), bool)

    def sample(self, step: int) -> list[Sample]:
        """The responses of one step, of the target's length each; no token ends them earlier."""
        c = self.cell
        seeds = [child_seed(c.seed, "sampling", step, j) for j in range(c.rollouts)]
        params = [SamplingParams(len(self.target), c.temperature, seed=seed) for seed in seeds]
        rows = asyncio.run(self.policy.generate([self.world.prompt_ids] * c.rollouts, params))
        ones = (1,) * len(self.target)
        return [
            Sample(
                self.world.prompt_ids, r.token_ids, ones, r.logprobs_T, 0.0, "agent", group=str(j // c.group)
            )
            for j, (r,) in enumerate(rows)
        ]

    def step(self, samples: Sequence[Sample], step: int) -> RealStep:
        """Reward, advantages, update; without any advantage nothing moves."""
        c = self.cell
        responses_BGL: Ints = np.array([s.completion_ids for s in samples]).reshape(
            -1, c.group, len(self.target)
        )
        coins = np.random.default_rng(child_seed(c.seed, "reward", step))
        rewards_BG = self.reward(Group(self._prompts, responses_BGL, self._format), coins)
        advantage_BG = advantages(rewards_BG, self._kind)[..., 0]
        graded = [
            Sample(
                s.prompt_ids, s.completion_ids, s.mask, s.logprobs, float(a), s.role, s.weight, s.group
            )
            for s, a in zip(samples, advantage_BG.ravel(), strict=True)
        ]  # fmt: skip
        before = self.learner.version
        metrics = self.learner.step(graded, c.temperature) if advantage_BG.any() else {}
        moved = self.learner.version > before
        if moved:
            asyncio.run(self.policy.load_weights(self.learner.named_weights(), self.learner.version))
        norms = [v for k, v in metrics.items() if k.startswith("grad_norm/")]
        return RealStep(
            reward=float(rewards_BG.mean()),
            hits=int((responses_BGL == np.array(self.target)).all(-1).sum()),
            rewarded=int((rewards_BG > 0).sum()),
            silent=int((~advantage_BG.any(-1)).sum()),
            groups=len(rewards_BG),
            grad_norm=max(norms, default=0.0),
            moved=moved,
            finite=metrics.get("skipped_updates", 0.0) == 0,
        )

    def mass(self, temperature: float = 1.0) -> float:
        """Exact probability of the target as it is now."""
        ones = (1,) * len(self.target)
        row = Sample(self.world.prompt_ids, self.target, ones, (0.0,) * len(ones), 0.0, "agent")
        return float(np.exp(self.learner.score([row], temperature)[0].astype(np.float64).sum()))

    def measure(self, samples: Sequence[Sample]) -> dict[str, float]:
        """The lens: exact mass; entropies in nats and the divergence from the start (nats a response) along
        `samples`, which the present policy gave. Of untouched weights the divergence is 0."""
        heat, some = self.cell.temperature, list(samples[: self.cell.lens])
        logprobs, entropies = self.learner.entropies(some, heat)
        out = {
            "mass": self.mass(),
            "H_seq": chain_rule(entropies),
            "H_tok": token_mean(entropies),
            "NLL": mean_nll(logprobs),
            "distinct": len({s.completion_ids for s in samples}) / len(samples),
            "KL": self._divergence(some, logprobs) if self.learner.version else 0.0,
        }
        if heat != 1.0:
            out["mass_rollout"] = self.mass(heat)
        places = np.stack(entropies).mean(0)
        return out | {f"H_tok/{i + 1}": float(h) for i, h in enumerate(places)}

    def _divergence(self, samples: Sequence[Sample], now: Sequence[Any]) -> float:
        """Mean of log pi - log pi of the start over responses of pi."""
        if self._start is None:
            self._start = CompactLearner(self.world.folder, self._cfg, self._device, threads=self._threads)
        then = self._start.entropies(samples, self.cell.temperature)[0]
        return float(np.mean([float(np.sum(a - b)) for a, b in zip(now, then, strict=True)]))

    def close(self) -> None:
        """Let engine and learner go."""
        asyncio.run(self.policy.close())
        self.learner.close()


def seconds_of(world: World, cells: Sequence[RealCell], device: str, threads: int) -> float:
    """Estimate for these cells on this machine, an update at every step, from one batch of responses."""
    if not cells:
        return 0.0
    run = RealRun(world, cells[0], device, threads)
    try:
        run.sample(0)
        began = time.perf_counter()
        samples = run.sample(1)
        sampling = time.perf_counter() - began
        began = time.perf_counter()
        run.learner.score(samples)
        scoring = time.perf_counter() - began
    finally:
        run.close()
    lens = 2 * min(1.0, cells[0].lens / cells[0].rollouts)
    return sum(c.steps for c in cells) * (sampling + (3 + lens) * scoring)
