"""What can be asked of a worker, and what comes back: operations are tuples, results are checked values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from spade.envs.contract import MAX_ACTION_CHARS, MAX_TURNS
from spade.errors import ProgramFault


class StepResult(NamedTuple):
    """One checked answer of `step`; `reward` is finite."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool


class PlayTrace(NamedTuple):
    """One episode played in one message.

    `observations` has one more entry than `rewards` (the first is the reset's), or none if brief.
    `after_end` holds the steps taken after the end (texts cut short), those that raised left out.
    """

    observations: list[str]
    rewards: list[float]
    terminated: bool
    truncated: bool
    after_end: list[StepResult]

    @property
    def value(self) -> float:
        """The return: the last reward if the program terminated, else 0."""
        return self.rewards[-1] if self.terminated and self.rewards else 0.0

    @property
    def ended(self) -> bool:
        """Whether the program itself ended the episode."""
        return self.terminated or self.truncated


class Criteria(NamedTuple):
    """What a tool-use program reports of its instructions: how many are done, and each predicate's value.

    A value is None where the predicate raised.
    """

    current: int
    met: tuple[bool | None, ...]


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """What a program says about itself after loading. `max_turns` is 0 if it does not say."""

    class_name: str
    game_type: str
    max_turns: int
    has_solution: bool
    has_hint: bool
    tools: tuple[dict[str, Any], ...] = ()

    @property
    def turns(self) -> int:
        """Turns an episode can take: the program's own limit, capped at the contract's."""
        return min(self.max_turns, MAX_TURNS) if self.max_turns else MAX_TURNS


Request = tuple[Any, ...]
Value = str | list[str] | list[dict[str, Any]] | StepResult | PlayTrace | Criteria | ProgramInfo | None
OpResult = Value | ProgramFault


class Op:
    """Builders of operations; an operation is a plain tuple."""

    @staticmethod
    def load(code: str) -> Request:
        """Load a program; the result is a `ProgramInfo`."""
        return ("l", code)

    @staticmethod
    def reset(i: int, seed: int) -> Request:
        """Start an episode of instance `i`; the result is the first observation."""
        return ("r", i, seed)

    @staticmethod
    def step(i: int, action: str) -> Request:
        """One step; the result is a `StepResult`."""
        return ("s", i, action if len(action) <= MAX_ACTION_CHARS else action[:MAX_ACTION_CHARS])

    @staticmethod
    def play(
        i: int,
        seed: int,
        actions: Sequence[str],
        *,
        turns: int | None = None,
        brief: bool = False,
        after: Sequence[str] = (),
    ) -> Request:
        """A whole episode: `actions` once, or over and over up to `turns`; the result is a `PlayTrace`.

        `brief` leaves the observations out; the actions `after` are given after the end.
        """
        return ("p", i, seed, list(actions), (len(actions) if turns is None else turns), brief, list(after))

    @staticmethod
    def solution(i: int) -> Request:
        """The program's own answer now: str or list of actions."""
        return ("o", i)

    @staticmethod
    def hint(i: int) -> Request:
        """The program's own hint now."""
        return ("h", i)

    @staticmethod
    def tools(i: int) -> Request:
        """Tools of instance `i` after its reset: a list in the OpenAI function format, or an empty one."""
        return ("t", i)

    @staticmethod
    def results(i: int) -> Request:
        """Results of the calls of the last step of instance `i`, one a call; empty after an answer."""
        return ("c", i)

    @staticmethod
    def criteria(i: int) -> Request:
        """What a tool-use program reports of its instructions; the result is `Criteria`."""
        return ("q", i)

    @staticmethod
    def exchange(verb: str, text: str) -> Request:
        """One message to a solution worker (`solution_worker.py`); the result is a text."""
        return ("x", verb, text)

    @staticmethod
    def drop(i: int) -> Request:
        """Forget instance `i`."""
        return ("d", i)
