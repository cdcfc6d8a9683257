"""One play of a program, how it ended, and the plays that are compared with each other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from spade.errors import FaultKind
from spade.types_design import EnvProgram
from spade.types_text import StopReason, Trajectory


class EpisodeEnd(StrEnum):
    """Every way an episode can end. Only `FAULT` has no score.

    "Scored 0" holds for `play.returns: outcome`; with `progress`, what was reached on the way counts.
    """

    TERMINATED = "terminated"
    """The program said the goal is reached or lost; the last reward counts."""
    TRUNCATED = "truncated"
    """The program's own turn limit; scored 0."""
    TURN_LIMIT = "turn_limit"
    """The loop's turn limit; scored 0."""
    CONTEXT_LIMIT = "context_limit"
    """No room for another turn; scored 0."""
    UNFINISHED = "unfinished"
    """A reply without an end-of-turn token; not played, scored 0."""
    FAULT = "fault"
    """The program or the machinery broke; no score."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange: what the policy said, what the program answered.

    `logprobs_T` has one entry per completion token, taken at the sampling temperature.
    """

    completion_ids: tuple[int, ...]
    logprobs_T: tuple[float, ...]
    text: str
    action: str
    observation: str
    reward: float
    stop: StopReason
    malformed: bool = False
    """No tool call and no answer could be read from the reply; a learner may leave its tokens out."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One playable task: program, seed, and the hint shown in the first observation (None = plain arm)."""

    program_id: str
    seed: int
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """A play with a value. `value` is the return in [-1, 1]; `solved` means full return."""

    tagged: ClassVar[bool] = True
    value: float
    solved: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """A play without a value: who broke it, where, and what was seen."""

    tagged: ClassVar[bool] = True
    kind: FaultKind
    where: str
    detail: str


Outcome = Scored | Fault


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished play.

    Where the chat template drops earlier thoughts, no single token stream holds all turns: `trajectory` is
    the first stream, `later` has one more for every turn whose prompt does not extend the stream before it.
    """

    instance: Instance
    trajectory: Trajectory
    turns: tuple[Turn, ...]
    first_observation: str
    outcome: Outcome
    end: EpisodeEnd
    seconds: float = 0.0
    later: tuple[Trajectory, ...] = ()

    @property
    def trajectories(self) -> tuple[Trajectory, ...]:
        """All token streams in the order of the turns; they belong to one episode and share its credit."""
        return (self.trajectory, *self.later)

    @property
    def sampled_tokens(self) -> int:
        """Number of tokens the model itself produced, over all streams."""
        return sum(t.sampled_tokens for t in self.trajectories)

    @property
    def truncated(self) -> bool:
        """Whether a limit (turns, context, tokens) ended the episode, neither the program nor a fault."""
        return self.end not in (EpisodeEnd.TERMINATED, EpisodeEnd.FAULT)

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions as the program received them, in order."""
        return tuple(t.action for t in self.turns)


@dataclass(frozen=True, slots=True)
class Group:
    """All plays of one program at one step. `hinted[i]` and `plain[i]` share a seed where both exist."""

    program: EnvProgram
    plain: tuple[Episode, ...]
    hinted: tuple[Episode, ...] = ()


@dataclass(frozen=True, slots=True)
class Regret:
    """Mean paired difference hinted minus plain. `stderr` is NaN when `n` < 2; faults drop the pair."""

    mean: float
    stderr: float
    n: int
    faults: int
