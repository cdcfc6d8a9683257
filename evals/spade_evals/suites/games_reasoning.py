"""The suite `games-reasoning`: tasks of reasoning-gym as one-step environments, made anew for every seed.

The benchmark of the same library is the suite `reasoning`, on frozen items; this one asks the tasks as games
are asked: in the Agent's own prompt, one answer in a box. Level 1 is the library's default configuration of a
task, level 2 the hard one. Solved means that the task's own scorer gives 1 or more; less is 0.
"""

from __future__ import annotations

from typing import Any, Final

from spade.envs.wire import StepResult
from spade.errors import FaultCode, InputError, ProgramFault
from spade_evals.grade.reasoning import Scorer, ScorerError
from spade_evals.question import GraderLost, GraderTimeout
from spade_evals.suite import About
from spade_evals.suites.games_hosted import HostedSuite, hosted_program, lost
from spade_evals.suites.games_pool import Game
from spade_evals.tasks.reasoning import ABSENT, DEFECTS, NO_REFERENCE, configurations, installed_version

LEFT_OUT: Final = {
    **dict.fromkeys(NO_REFERENCE, "has no reference answer"),
    **DEFECTS,
    "codeio": "its items differ from process to process",
}
"""Tasks that are no games, and why."""


class ReasoningHost:
    """Makes and scores items through the library's process (`spade_evals.grade.reasoning`)."""

    def __init__(self, scorer: Scorer | None = None) -> None:
        self.scorer = scorer or Scorer()
        self._open: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}

    def reset(self, instance: int, game: dict[str, Any], seed: int) -> str:
        """Make the item of a seed; its question. See `Host.reset`."""
        try:
            [entry] = self.scorer.make(game["task"], game["config"], seed, 1)
        except ScorerError as error:
            raise ProgramFault(FaultCode.EXCEPTION, str(error)) from error
        except GraderTimeout as error:
            raise ProgramFault(FaultCode.CPU_LIMIT, str(error)) from error
        except GraderLost as error:
            raise lost(str(error)) from error
        self._open[instance] = game, entry
        return f"{entry['question'].strip()}\n\nThis is the only turn: give the final answer."

    def step(self, instance: int, action: str) -> StepResult:
        """Score the answer; it ends the episode. See `Host.step`."""
        game, entry = self._open[instance]
        try:
            score = self.scorer.score(game["task"], game["config"], entry, action)
        except (GraderTimeout, ScorerError) as error:
            # The scorer must work on the library's own answer; then it is this answer that breaks it.
            self._on_reference(game, entry)
            return StepResult(f"That cannot be scored: {error}", 0.0, True, False)
        except GraderLost as error:
            raise lost(str(error)) from error
        right = score >= 1.0
        return StepResult("Right." if right else "Wrong.", float(right), True, False)

    def _on_reference(self, game: dict[str, Any], entry: dict[str, Any]) -> None:
        try:
            self.scorer.score(game["task"], game["config"], entry, str(entry["answer"]))
        except GraderLost as error:
            raise lost(str(error)) from error
        except (GraderTimeout, ScorerError) as error:
            raise ProgramFault(FaultCode.EXCEPTION, f"the scorer fails on its own answer: {error}") from error

    def solution(self, instance: int) -> str:
        """See `Host.solution`."""
        return str(self._open[instance][1]["answer"])

    def drop(self, instance: int) -> None:
        """See `Host.drop`."""
        self._open.pop(instance, None)

    def close(self) -> None:
        """See `Host.close`."""
        self.scorer.close()


class ReasoningSuite(HostedSuite):
    """See the module text."""

    name = "games-reasoning"
    about = About(
        186,
        "reasoning-gym on the package index, made by seed",
        "the installed version",
        "Apache-2.0",
        lambda: installed_version() != ABSENT,
        "pip install reasoning-gym",
    )
    seeds = 1

    def host(self) -> ReasoningHost:
        """A new process of the library."""
        return ReasoningHost()


def reasoning_games() -> list[Game]:
    """Every task of the four groups but those left out, at both levels."""
    version = installed_version()
    if version == ABSENT:
        raise InputError(
            "the suite games-reasoning needs reasoning-gym; install it: pip install reasoning-gym"
        )
    games = []
    for group, tasks in configurations().items():
        for task, hard in tasks.items():
            if task in LEFT_OUT:
                continue
            for level, config in ((1, {}), (2, hard)):
                game = {"task": task, "config": config}
                program = hosted_program("reasoning-gym", version, game, "single_turn")
                games.append(Game(task, f"reasoning/{group}", level, program))
    return games


def make_suite() -> ReasoningSuite:
    """The registered factory."""
    return ReasoningSuite(reasoning_games())
