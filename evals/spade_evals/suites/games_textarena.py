"""The suite `games-textarena`: single-player games of TextArena (arXiv 2504.11442), in their own process.

Needs the extra `games`. The return is the game's own last reward, within [-1, 1]; many games pay a share for
part of the way. Games end after `MAX_TURNS` turns, sooner where TextArena says so.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from spade.envs.contract import MAX_TURNS
from spade.envs.wire import StepResult
from spade.errors import FaultCode, InputError, ProgramFault
from spade_evals.grade.reasoning import PASSED_ON, read_line
from spade_evals.suites.games_hosted import HostedSuite, hosted_program, lost
from spade_evals.suites.games_pool import Game

HOST: Final = Path(__file__).with_name("games_textarena_host.py")
START_SECONDS: Final = 180.0
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
        self.process: subprocess.Popen[bytes] | None = None
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
            if instance in self._alive and self.process is not None and self.process.poll() is None:
                self._alive.discard(instance)
                self._ask({"op": "drop", "instance": instance})

    def close(self) -> None:
        """See `Host.close`."""
        process, self.process = self.process, None
        self._alive = set()
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

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
            answer = self._exchange(self._running(), request)
        except BaseException:
            self.close()  # whatever it would answer later belongs to no question
            raise
        if "error" in answer:
            raise ProgramFault(FaultCode.EXCEPTION, str(answer["error"]))
        return answer

    def _running(self) -> subprocess.Popen[bytes]:
        """The process, a new one where there was none or it has ended."""
        if self.process is None or self.process.poll() is not None:
            self.close()
            env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", str(HOST)],
                env={**env, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us; without us its input ends
            )
            self._exchange(self.process, {"op": "hello"})
        return self.process

    def _exchange(self, process: subprocess.Popen[bytes], request: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None
        seconds = START_SECONDS if request["op"] == "hello" else CPU_SECONDS
        try:
            process.stdin.write(json.dumps({**request, "cpu_seconds": seconds}).encode() + b"\n")
            process.stdin.flush()
            line = read_line(process, WALL_SECONDS)
        except BrokenPipeError:
            line = b""
        except TimeoutError as error:
            raise lost(str(error)) from error
        if not line.endswith(b"\n"):
            raise self._died(process)
        return dict(json.loads(line))

    def _died(self, process: subprocess.Popen[bytes]) -> Exception:
        code = process.wait()
        if code == -signal.SIGXCPU:
            return ProgramFault(FaultCode.CPU_LIMIT, f"more than {CPU_SECONDS:g} s of processor time")
        if code > 0:
            return InputError("textarena cannot be loaded; install the extra: pip install 'spade[games]'")
        return lost(f"the process of textarena ended with code {code}")


class TextArenaSuite(HostedSuite):
    """See the module text."""

    name = "games-textarena"

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
            "the suite games-textarena needs the extra games; install it: pip install 'spade[games]'"
        ) from error
    return TextArenaSuite(textarena_games(release))
