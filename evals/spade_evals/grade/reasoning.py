"""Scores answers to Reasoning-Gym items, and makes items, in a process that may be killed at any time.

    answer ─read_answer─► text ─Scorer.score─► raw score; solved = 1 or more

Raises GraderTimeout for an answer that takes too long, GraderLost when the process was killed from outside,
ScorerError when the scorer raised or took its process down.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from spade.envs.contract import boxed_content
from spade.errors import InputError
from spade.play.actions import strip_thoughts
from spade_evals.hosting.supervisor import Crashed, Expired, Lost, NotStarted, Pool, Raised, Stalled
from spade_evals.question import GraderLost, GraderTimeout

HOST: Final = "spade_evals.grade.reasoning_host"

CPU_SECONDS: Final = 10.0
"""Processor time for one answer; the slowest reference answer takes 0.1 s. Processor time, so that a busy
machine changes no verdict."""
WALL_SECONDS: Final = 120.0
"""Wall time for one answer; only a process that waits, or a very busy machine, gets there."""
MAKE_SECONDS: Final = 180.0
"""Processor time for making items, and 30 more for each; the slowest item takes eight."""
MAX_CHARS: Final = 100_000
"""An answer is cut there before it is scored; no reference is longer than a tenth of it."""

_OPEN, _CLOSE = "<answer>", "</answer>"


class ScorerError(Exception):
    """The dataset's own scorer raised on this answer, or its process died of it."""


def read_answer(answer: str) -> str | None:
    r"""What stands in the last complete `<answer>...</answer>` outside the thought.

    Without one, what stands in the last `\boxed{}`; None without either.
    """
    text = strip_thoughts(answer)
    end = text.rfind(_CLOSE)
    start = text.rfind(_OPEN, 0, max(end, 0))
    found = text[start + len(_OPEN) : end] if start >= 0 else boxed_content(text)
    found = (found or "").strip()
    return found[:MAX_CHARS] if found else None


class Scorer:
    """The process behind `reasoning_host.py`: started when first needed, started again after it died.

    Calls from several threads take turns.
    """

    def __init__(self, cpu_seconds: float = CPU_SECONDS, wall_seconds: float = WALL_SECONDS) -> None:
        self.cpu_seconds, self.wall_seconds = cpu_seconds, wall_seconds
        self.pool = Pool(HOST, 1)

    def version(self) -> str:
        """Version of the installed reasoning-gym."""
        return str(self._patient({"op": "version"}, MAKE_SECONDS)["version"])

    def score(self, task: str, config: dict[str, Any], entry: dict[str, Any], answer: str) -> float:
        """Raw score of an answer by the task's own scorer under its own config. Raises as the module says."""
        request = {"op": "score", "task": task, "config": config, "entry": entry, "answer": answer}
        for last in (False, True):
            try:
                return float(self._ask(request, self.cpu_seconds, self.wall_seconds)["score"])
            except Stalled as error:  # perhaps only the machine was busy
                if last:
                    raise GraderTimeout(str(error)) from error
        raise AssertionError

    def make(self, task: str, config: dict[str, Any], seed: int, size: int) -> list[dict[str, Any]]:
        """`size` new entries. Raises ScorerError when the library cannot make them; else see the module."""
        request = {"op": "make", "task": task, "config": config, "seed": seed, "size": size}
        return list(self._patient(request, MAKE_SECONDS + 30.0 * size)["entries"])

    def close(self) -> None:
        """End the process; a later call starts a new one."""
        self.pool.close()

    def _patient(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        try:
            return self._ask(request, seconds, 10 * seconds)
        except Stalled as error:
            raise GraderLost(str(error)) from error

    def _ask(self, request: dict[str, Any], cpu_seconds: float, wall_seconds: float) -> dict[str, Any]:
        try:
            return self.pool.ask(request, cpu_seconds, wall_seconds)
        except Expired as error:
            raise GraderTimeout(str(error)) from None
        except (Raised, Crashed) as error:
            raise ScorerError(str(error)) from None
        except Stalled:
            raise
        except Lost as error:
            raise GraderLost(f"the scorer was lost: {error}") from None
        except NotStarted as error:
            how = "install it with: pip install reasoning-gym"
            raise InputError(f"reasoning-gym cannot be loaded; {how} ({error})") from error


@cache
def shared_scorer() -> Scorer:
    """One scorer for all tasks of this process."""
    return Scorer()
