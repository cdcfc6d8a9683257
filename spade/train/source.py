"""Where programs come from. Everything a baseline changes lies behind `EnvSource`; the loop is shared.

    begin_step(step) ──► programs, each with or without a hinted arm
    observe(step, groups) ──► credits for trajectories, the source's own book-keeping done
    flush() ──► credits still owed when the run ends

A source that has state saves and restores itself, so that curricula are part of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from spade.config import Config
from spade.learn.advantages import agent_advantages
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
        """Numbers of the latest step."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        ...


SourceFactory = Callable[[World], EnvSource]
"""What the registry's `source` rows point to."""


def returns(episodes: Sequence[Episode]) -> list[float]:
    """Returns of the plays that have one; faults are not returns."""
    return [e.outcome.value for e in episodes if isinstance(e.outcome, Scored)]


def faults(episodes: Sequence[Episode]) -> list[Fault]:
    """Faults among the plays."""
    return [e.outcome for e in episodes if isinstance(e.outcome, Fault)]


def agent_credits(episodes: Sequence[Episode], group: str, cfg: Config) -> list[Credit]:
    """Credits of one arm of one program: advantages within the arm, faults left out."""
    scored = [e for e in episodes if isinstance(e.outcome, Scored)]
    advantages_G = agent_advantages(returns(scored), cfg.learner.advantage, cfg.learner.std_floor)
    return [
        Credit(episode.trajectory, float(advantage), group=group)
        for episode, advantage in zip(scored, advantages_G, strict=True)
        if episode.trajectory.sampled_tokens
    ]
