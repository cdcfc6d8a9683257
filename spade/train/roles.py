"""Which policy stands behind which role, and who learns from what.

`design.policy` decides for the Designer (the Agent is always `model`):

    shared      one policy plays both roles and learns from both (the published method)
    frozen      the start weights of `model` design and never change
    separate    a second copy of `model` designs and learns from its own designs only
    REFERENCE   any other model (`openai:MODEL@URL`, a checkpoint folder, ...) designs and never changes
    scripted:mechanics   no model: sound programs drawn from the embedded model's mechanics, for comparison

Whether the Designer's samples enter the update of a shared policy is `learner.designer_weight`, a different
question: with weight 0 the shared policy still designs with whatever it has become as an Agent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade.config import Config, LearnerConfig
from spade.errors import ConfigError, InputError
from spade.types import Sample

if TYPE_CHECKING:
    from spade.learn.learner import Learner
    from spade.serving.chat import ChatPolicy, ModelRef

MECHANICS = "scripted:mechanics"
"""`design.policy` of the scripted Designer (`spade.embedded.designer`)."""
DESIGNER_FOLDER = "designer"
"""Folder below the run folder in which a separate Designer keeps its checkpoints."""


@dataclass(slots=True)
class Roles:
    """The policies of both roles. `designer` is `agent` itself when they share the weights."""

    agent: ChatPolicy
    learner: Learner
    designer: ChatPolicy
    designer_learner: Learner | None = None
    """Trains a separate Designer; None when the Designer is shared or never changes."""

    @property
    def shared(self) -> bool:
        """Whether one policy plays both roles."""
        return self.designer is self.agent

    def route(self, samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
        """Samples for the Agent's learner and for the separate Designer's; those of a Designer that never
        changes are dropped."""
        if self.shared:
            return list(samples), []
        mine = [s for s in samples if s.role != "designer"]
        theirs = [s for s in samples if s.role == "designer"] if self.designer_learner is not None else []
        return mine, theirs

    def step(
        self, samples: Sequence[Sample], temperature: Mapping[str, float], lr_scale: float
    ) -> dict[str, float]:
        """One update of every policy that has samples; metrics of the Designer's own are prefixed."""
        mine, theirs = self.route(samples)
        learned = dict(self.learner.step(mine, temperature, lr_scale)) if mine else {}
        if theirs and self.designer_learner is not None:
            own = self.designer_learner.step(theirs, temperature, lr_scale)
            learned |= {f"separate/{key}": value for key, value in own.items()}
        return learned

    @property
    def updates(self) -> int:
        """Optimiser updates of all learners so far."""
        own = self.designer_learner.version if self.designer_learner is not None else 0
        return self.learner.version + own

    @property
    def versions(self) -> dict[str, int]:
        """Version of the weights that learn from the samples of each role."""
        own = self.learner if self.designer_learner is None else self.designer_learner
        return {"agent": self.learner.version, "designer": own.version}

    @asynccontextmanager
    async def asleep(self, wanted: bool) -> AsyncIterator[None]:
        """Inside this the engines have given back what memory they can, if that is `wanted`."""
        policies = [self.agent.policy, *([] if self.shared else [self.designer.policy])] if wanted else []
        for policy in policies:
            await policy.sleep()
        yield
        for policy in policies:
            await policy.wake()

    async def publish(self) -> None:
        """Give the sampling side the weights of everything that learns."""
        from spade.learn.weights import publish

        await publish(self.learner, self.agent.policy)
        if self.designer_learner is not None:
            await publish(self.designer_learner, self.designer.policy)

    def save(self, run: Path, step: int, state: Mapping[str, Any], keep: int) -> None:
        """Write the checkpoints of `step`. The Agent's comes last: where it is whole, all are."""
        from spade.learn.checkpoint import checkpoint_path, prune, save_checkpoint

        if self.designer_learner is not None:
            own = run / DESIGNER_FOLDER
            save_checkpoint(checkpoint_path(own, step), self.designer_learner, _files(self.designer), {})
        save_checkpoint(checkpoint_path(run, step), self.learner, _files(self.agent), state)
        prune(run, keep)
        if self.designer_learner is not None:
            prune(run / DESIGNER_FOLDER, keep)

    def load(self, run: Path) -> dict[str, Any] | None:
        """Go back to the last whole checkpoint; returns the state saved with it, None if there is none.

        Raises InputError when the separate Designer's checkpoint of the same step is gone.
        """
        from spade.learn.checkpoint import checkpoint_path, latest_checkpoint, load_checkpoint

        path = latest_checkpoint(run)
        if path is None:
            return None
        saved = load_checkpoint(path)
        self.learner.load_state_dict(saved.learner)
        if self.designer_learner is not None:
            own = checkpoint_path(run / DESIGNER_FOLDER, int(path.name.removeprefix("step-")))
            if not own.is_dir():
                raise InputError(f"{own} is missing, so the Designer cannot go on; start the run anew")
            self.designer_learner.load_state_dict(load_checkpoint(own).learner)
        return saved.extra

    async def close(self) -> None:
        """Close learners and policies."""
        for learner in (self.learner, self.designer_learner):
            if learner is not None:
                learner.close()
        await self.agent.close()
        if not self.shared:
            await self.designer.close()


async def open_roles(cfg: Config, chat: ChatPolicy | None = None, learner: Learner | None = None) -> Roles:
    """Open what `cfg.model` and `cfg.design.policy` name; `chat` and `learner` replace the Agent's (tests).

    Raises InputError or ConfigError for a reference that cannot be used.
    """
    from spade.serving.launch import open_chat

    agent = chat or await open_chat(cfg.model, cfg.serving)
    learner = learner or open_learner(cfg, agent)
    wanted = cfg.design.policy
    if wanted == "shared":
        return Roles(agent, learner, agent)
    if wanted == MECHANICS:
        from spade.embedded.designer import open_mechanics

        return Roles(agent, learner, open_mechanics(agent))
    designer = await open_chat(cfg.model if wanted in ("frozen", "separate") else wanted, cfg.serving)
    if wanted != "separate":
        return Roles(agent, learner, designer)
    return Roles(agent, learner, designer, open_learner(cfg, designer))


def trains_designs(cfg: Config) -> bool:
    """Whether anything is learned from the Designer's samples."""
    return cfg.design.policy in ("shared", "separate") and cfg.learner.designer_weight > 0


def check_roles(cfg: Config) -> None:
    """Find contradictions before anything is opened. Raises ConfigError."""
    policy = cfg.design.policy
    if policy == "separate" and not trains_designs(cfg):
        raise ConfigError(
            "design.policy is separate, but learner.designer_weight is 0, so the separate Designer would "
            "never learn; use design.policy=frozen"
        )
    if policy == MECHANICS:
        _check_mechanics(cfg)
    elif policy not in ("shared", "frozen", "separate"):
        from spade.serving.launch import resolve_ref

        resolve_ref(policy)


def _check_mechanics(cfg: Config) -> None:
    """The scripted Designer writes programs and nothing else. Raises ConfigError."""
    judge = cfg.validator.stages.get("judge", False)
    judged = judge.get("enabled", True) if isinstance(judge, dict) else judge
    for wrong, reason in (
        (
            cfg.design.game_type == "single_turn",
            "it writes no single-turn programs; use multi_turn or tool_use",
        ),
        (cfg.design.guide_weight > 0, "it has no opinion of programs; set design.guide_weight=0"),
        (cfg.design.repair_turns > 0, "it cannot repair programs; set design.repair_turns=0"),
        (judged and cfg.validator.judge.model is None, "it cannot judge programs; set validator.judge.model"),
    ):
        if wrong:
            raise ConfigError(f"design.policy is {MECHANICS}, but {reason}")


def open_learner(cfg: Config, chat: ChatPolicy) -> Learner:
    """The learner behind a policy. Raises InputError for one that has no weights to train."""
    if chat.ref is None or not chat.policy.exact_tokens:
        raise InputError(f"the model '{cfg.model}' has no weights to train; use a checkpoint or 'embedded'")
    return make_learner(cfg, chat.ref)


def make_learner(cfg: Config, ref: ModelRef, *, alone: bool = False) -> Learner:
    """The learner of `learner.type` for a checkpoint; `alone`: a compact one that no other process shares.

    Raises InputError for a reference without weights.
    """
    from spade.learn.parallel import join
    from spade.learn.trainer import CompactLearner

    if ref.path is None:
        raise InputError(f"the model '{cfg.model}' has no weights to train; use a checkpoint or 'embedded'")
    serving, settings = cfg.serving, learner_config(cfg)
    where = serving.device, serving.dtype, serving.threads
    if alone or settings.type == "compact":
        return CompactLearner(ref.path, settings, *where, team=None if alone else join())
    from spade.learn.trl import TrlLearner

    return TrlLearner(ref.path, settings, *where, temperature=cfg.play.temperature)


def learner_count(cfg: Config) -> int:
    """How many learners `open_roles` makes."""
    return 2 if cfg.design.policy == "separate" else 1


def learner_config(cfg: Config) -> LearnerConfig:
    """The learner's configuration. One step off, sampler and learner differ by an update and by intention, so
    that their difference raises no alarm."""
    if not cfg.train.staleness:
        return cfg.learner
    return cfg.learner.model_copy(update={"mismatch_alarm": 0.0, "ratio_alarm": 0.0})


def _files(chat: ChatPolicy) -> Path:
    """The folder whose tokenizer files a checkpoint takes over."""
    assert chat.ref is not None and chat.ref.path is not None, "only local checkpoints are trained"
    return chat.ref.path
