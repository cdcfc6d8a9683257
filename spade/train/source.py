"""Where programs come from. Everything a baseline changes lies behind `EnvSource`; the loop is shared.

    begin_step(step) ──► programs, each with or without a hinted arm
    observe(step, groups) ──► credits for trajectories, the source's own book-keeping done
    flush() ──► credits still owed when the run ends

A source that has state saves and restores itself, so that curricula are part of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from spade.config import Config
from spade.learn.advantages import RUNNING_KINDS, agent_advantages
from spade.learn.baselines import Baselines
from spade.learn.episodes import episode_credits
from spade.train.ledger import Ledger
from spade.types import Credit, EnvProgram, Episode, Fault, Group, Scored

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.runs import RunFolder
    from spade.serving.chat import ChatPolicy


@dataclass(frozen=True, slots=True)
class World:
    """What a source works with."""

    cfg: Config
    chat: ChatPolicy
    sandbox: Sandbox
    folder: RunFolder
    ledger: Ledger
    designer: ChatPolicy | None = None
    """The Designer's policy where it is not the Agent's."""

    @property
    def design_chat(self) -> ChatPolicy:
        """The policy that designs."""
        return self.designer or self.chat


class EnvSource(Protocol):
    """A stream of programs to play, and the credit that comes of it."""

    async def begin_step(self, step: int) -> list[tuple[EnvProgram, bool]]:
        """Programs of this step in playing order; True asks for a hinted arm (the program carries a hint)."""
        ...

    async def observe(self, step: int, groups: Sequence[Group]) -> list[Credit]:
        """Take the plays of this step; returns what to train on now."""
        ...

    def flush(self) -> list[Credit]:
        """Credits that were waiting when the run ends."""
        ...

    @property
    def owes_play(self) -> bool:
        """Whether accepted programs are still unplayed, so that the run should not stop yet."""
        ...

    def metrics(self) -> dict[str, float]:
        """Numbers of the latest step; asked for once, after `observe` and `flush`."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        ...


Arm = Literal["plain", "hinted"]

SourceFactory = Callable[[World], EnvSource]
"""What the registry's `source` rows point to. One with an attribute `check` is asked before a run folder is
made: `check(cfg)` raises ConfigError or InputError for what would fail later."""


def returns(episodes: Sequence[Episode]) -> list[float]:
    """Returns of the plays that have one; faults are not returns."""
    return [e.outcome.value for e in episodes if isinstance(e.outcome, Scored)]


def faults(episodes: Sequence[Episode]) -> list[Fault]:
    """Faults among the plays."""
    return [e.outcome for e in episodes if isinstance(e.outcome, Fault)]


def running_baselines(cfg: Config) -> Baselines:
    """The memory of the `ema` and `rae` advantages; part of a source's state."""
    return Baselines(cfg.learner.ema_decay if cfg.learner.advantage == "ema" else cfg.learner.rae_decay)


def baseline_metrics(cfg: Config, baselines: Baselines) -> dict[str, float]:
    """Running baselines of the latest step: by arm and skill (`rae`), or their mean by arm (`ema`)."""
    if cfg.learner.advantage == "rae":
        return {f"baseline/{key}": value for key, value in sorted(baselines.latest.items())}
    by_arm: dict[str, list[float]] = {}
    for key, value in sorted(baselines.latest.items()):
        by_arm.setdefault(key.rpartition("/")[2], []).append(value)
    return {f"baseline/{arm}": sum(values) / len(values) for arm, values in by_arm.items()}


def agent_credits(
    step: int, groups: Sequence[Group], cfg: Config, baselines: Baselines, arms: Sequence[Arm] = ("plain",)
) -> list[Credit]:
    """Credits of the Agent for all plays of a step: advantages within one arm of one program, faults left
    out.

    `baselines` are only read and moved by `learner.advantage` `ema` (by program and arm) and `rae` (by arm
    and skill).
    """
    rows = [(g.program, arm, _scored(g, arm)) for g in groups for arm in arms]
    keys = [_baseline_key(program, arm, cfg) for program, arm, _ in rows]
    running: dict[str, float] = {}
    if cfg.learner.advantage in RUNNING_KINDS:
        seen: dict[str, list[float]] = {}
        for key, (_, _, plays) in zip(keys, rows, strict=True):
            seen.setdefault(key, []).extend(returns(plays))
        running = baselines.update(seen)
    credits: list[Credit] = []
    for key, (program, arm, plays) in zip(keys, rows, strict=True):
        if not plays:
            continue
        learner = cfg.learner
        advantages_G = agent_advantages(
            returns(plays), learner.advantage, learner.std_floor, running.get(key)
        )
        for number, (episode, advantage) in enumerate(zip(plays, advantages_G, strict=True)):
            credits += episode_credits(
                episode,
                float(advantage),
                f"{step}/{program.id}/{arm}",
                number,
                game_type=program.game_type,
                mask_truncated=learner.mask_truncated,
                mask_malformed=learner.mask_malformed,
            )
    return credits


def _scored(group: Group, arm: Arm) -> list[Episode]:
    plays = group.plain if arm == "plain" else group.hinted
    return [e for e in plays if isinstance(e.outcome, Scored)]


def _baseline_key(program: EnvProgram, arm: Arm, cfg: Config) -> str:
    return f"{arm}/{program.skill}" if cfg.learner.advantage == "rae" else f"{program.id}/{arm}"
