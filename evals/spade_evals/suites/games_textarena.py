"""The suite `games-textarena`: single-player games of TextArena (arXiv 2504.11442), in their own process.

Needs the extra `games`. The return is the game's own last reward, within [-1, 1]; many games pay a share for
part of the way. Games end after `MAX_TURNS` turns, sooner where TextArena says so.
"""

from __future__ import annotations

import contextlib
import threading
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Final

from spade.envs.contract import MAX_TURNS
from spade.envs.wire import StepResult
from spade.errors import FaultCode, InputError, ProgramFault
from spade_evals.hosting.supervisor import Crashed, Expired, Host, Lost, NotStarted, Raised
from spade_evals.suite import About
from spade_evals.suites.games_hosted import HostedSuite, hosted_program, lost
from spade_evals.suites.games_pool import Game

HOST: Final = "spade_evals.suites.games_textarena_host"
CPU_SECONDS: Final = 60.0
"""Processor time of one call; the slowest one, making a RushHour board, takes three seconds."""
WALL_SECONDS: Final = 600.0

GAMES: Final = {
    "2048-v0-ultra-easy": 1,
    "Bandit-v0": 1,
    "Blackjack-v0": 1,
    "Blackjack-v0-long": 2,
    "Crosswords-v0": 2,
    "Crosswords-v0-hardcore": 3,
    "FrozenLake-v0": 1,
    "FrozenLake-v0-random": 2,
    "FrozenLake-v0-hardcore": 3,
    "GuessTheNumber-v0": 1,
    "GuessTheNumber-v0-hardcore": 3,
    "LightsOut-v0": 3,
    "LogicPuzzle-v0": 2,
    "LogicPuzzle-v0-hard": 3,
    "Mastermind-v0": 2,
    "Minesweeper-v0-small": 2,
    "PegJump-v0": 3,
    "RushHour-v0": 3,
    "Secretary-v0": 1,
    "Secretary-v0-long": 2,
    "Set-v0": 2,
    "TowerOfHanoi-v0": 1,
}
"""Environment ids and their levels."""

LEFT_OUT: Final = {
    "FifteenPuzzle, Slitherlink, Sudoku, the larger 2048, Bandit, Mastermind, Minesweeper, TowerOfHanoi": (
        f"cannot be finished within {MAX_TURNS} turns"
    ),
    "Hangman, WordLadder, WordSearch, Wordle": "fetch word lists when they start",
    "Countdown, Cryptarithm, ThreeCardMonte": "of 0.7.4 raise on their own moves or on a malformed one",
    "GuessWho, TwentyQuestions": "need a paid language model as game master",
    "Klondike, Sokoban, UltimateTexasHoldem": "of 0.7.4 cannot be imported",
}
"""Single-player games that are not played, and why."""


class TextArenaHost:
    """The process behind `games_textarena_host.py`.

    It may die: of a game that takes too long, or killed from outside. Then a new one is started, and games
    that were going on are played again from their seed and actions when they are next asked for.
    """

    def __init__(self) -> None:
        self.process: Host | None = None
        self._turn = threading.Lock()
        self._played: dict[int, tuple[dict[str, Any], int, list[str]]] = {}
        self._alive: set[int] = set()
        """Instances that the present process knows."""

    def reset(self, instance: int, game: dict[str, Any], seed: int) -> str:
        """See `Host.reset`."""
        with self._turn:
            self._played[instance] = game, seed, []
            return str(self._retried(instance, self._start_request(instance))["text"])

    def step(self, instance: int, action: str) -> StepResult:
        """See `Host.step`."""
        with self._turn:
            answer = self._retried(instance, {"op": "step", "instance": instance, "action": action})
            self._played[instance][2].append(action)
        reward = min(1.0, max(-1.0, float(answer["reward"])))
        return StepResult(str(answer["text"]), reward, bool(answer["done"]), False)

    def solution(self, instance: int) -> str:
        """TextArena says no solutions."""
        return ""

    def drop(self, instance: int) -> None:
        """See `Host.drop`."""
        with self._turn:
            self._played.pop(instance, None)
            if instance in self._alive and self.process is not None and self.process.alive:
                self._alive.discard(instance)
                with contextlib.suppress(ProgramFault):  # a process that is gone has forgotten it too
                    self._ask({"op": "drop", "instance": instance})

    def close(self) -> None:
        """See `Host.close`."""
        process, self.process, self._alive = self.process, None, set()
        if process is not None:
            process.close()

    # --- inside ----------------------------------------------------------------------------------------

    def _start_request(self, instance: int) -> dict[str, Any]:
        game, seed, _ = self._played[instance]
        return {
            "op": "reset",
            "instance": instance,
            "game": game["game"],
            "turns": game["turns"],
            "seed": seed,
        }

    def _retried(self, instance: int, request: dict[str, Any]) -> dict[str, Any]:
        """Ask; once more where the process was ended from outside, in another process."""
        for last in (False, True):
            try:
                self._running()  # first, because a new process knows no game
                if request["op"] == "step" and instance not in self._alive:
                    self._replay(instance)
                answer = self._ask(request)
                self._alive.add(instance)
                return answer
            except ProgramFault as fault:
                if fault.code is not FaultCode.LOST or last:
                    raise
        raise AssertionError("unreachable")

    def _replay(self, instance: int) -> None:
        self._ask(self._start_request(instance))
        for action in self._played[instance][2]:
            self._ask({"op": "step", "instance": instance, "action": action})
        self._alive.add(instance)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._running().ask(request, CPU_SECONDS, WALL_SECONDS)
        except Raised as error:
            raise ProgramFault(FaultCode.EXCEPTION, str(error)) from None
        except Expired as error:
            raise ProgramFault(FaultCode.CPU_LIMIT, str(error)) from None
        except (Lost, Crashed) as error:
            raise lost(f"the process of textarena: {error}") from None

    def _running(self) -> Host:
        """The process, a new one where there was none or it has ended. Raises InputError."""
        if self.process is None or not self.process.alive:
            self.close()
            try:
                self.process = Host(HOST)
            except NotStarted as error:
                how = "install the extra: pip install 'spade-rl[games]'"
                raise InputError(f"textarena cannot be loaded; {how} ({error})") from error
        return self.process


class TextArenaSuite(HostedSuite):
    """See the module text."""

    name = "games-textarena"
    about = About(
        88,
        "textarena on the package index (LeonGuertler/TextArena), 22 games of one player",
        "the installed version",
        "MIT",
        lambda: find_spec("textarena") is not None,
        "pip install 'spade-rl[games]'",
    )

    def host(self) -> TextArenaHost:
        """A new process of the library."""
        return TextArenaHost()


def textarena_games(release: str) -> list[Game]:
    """The games as of a release of TextArena."""
    games = []
    for name, level in GAMES.items():
        family = name.split("-v0")[0]
        game = {"game": name, "turns": MAX_TURNS}
        program = hosted_program("textarena", release, game, "multi_turn")
        games.append(Game(family, "textarena", level, program))
    return games


def make_suite() -> TextArenaSuite:
    """The registered factory. Raises InputError without the extra."""
    try:
        release = version("textarena")
    except PackageNotFoundError as error:
        raise InputError(
            "the suite games-textarena needs the extra games; install it: pip install 'spade-rl[games]'"
        ) from error
    return TextArenaSuite(textarena_games(release))
