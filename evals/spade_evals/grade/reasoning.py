"""Scores answers to Reasoning-Gym items, and makes items, in a process that may be killed at any time.

    answer ─read_answer─► text ─Scorer.score─► raw score; solved = 1 or more

Raises GraderTimeout for an answer that takes too long, GraderLost when the process was killed from outside,
ScorerError when the scorer raised or took its process down.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

from spade.envs.contract import boxed_content
from spade.errors import InputError
from spade.play.actions import strip_thoughts
from spade_evals.question import GraderLost, GraderTimeout

HOST: Final = Path(__file__).with_name("reasoning_host.py")

CPU_SECONDS: Final = 10.0
"""Processor time for one answer; the slowest reference answer takes 0.1 s. Processor time, so that a busy
machine changes no verdict."""
WALL_SECONDS: Final = 120.0
"""Wall time for one answer; only a process that waits, or a very busy machine, gets there."""
START_SECONDS: Final = 180.0
MAX_CHARS: Final = 100_000
"""An answer is cut there before it is scored; no reference is longer than a tenth of it."""

_OPEN, _CLOSE = "<answer>", "</answer>"
PASSED_ON: Final = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")
"""Variables that a process of a foreign library gets; no others, so no secrets."""


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
        self.process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        atexit.register(self.close)

    def version(self) -> str:
        """Version of the installed reasoning-gym."""
        return str(self._ask({"op": "version"}, START_SECONDS, START_SECONDS)["version"])

    def score(self, task: str, config: dict[str, Any], entry: dict[str, Any], answer: str) -> float:
        """Raw score of an answer by the task's own scorer under its own config. Raises as the module says."""
        request = {"op": "score", "task": task, "config": config, "entry": entry, "answer": answer}
        for last in (False, True):
            try:
                return float(self._ask(request, self.cpu_seconds, self.wall_seconds)["score"])
            except TimeoutError as error:  # the wall limit alone: perhaps only the machine was busy
                if last:
                    raise GraderTimeout(str(error)) from error
        raise AssertionError

    def make(self, task: str, config: dict[str, Any], seed: int, size: int) -> list[dict[str, Any]]:
        """`size` new entries. Raises ScorerError when the library cannot make them."""
        request = {"op": "make", "task": task, "config": config, "seed": seed, "size": size}
        seconds = START_SECONDS + 30.0 * size
        return list(self._ask(request, seconds, 10 * seconds)["entries"])

    def close(self) -> None:
        """End the process; a later call starts a new one."""
        process, self.process = self.process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _ask(self, request: dict[str, Any], cpu_seconds: float, wall_seconds: float) -> dict[str, Any]:
        with self._turn:
            try:
                process = self._started()
                answer = self._exchange(process, {**request, "cpu_seconds": cpu_seconds}, wall_seconds)
            except BaseException:
                self.close()  # whatever it would answer later belongs to no question
                raise
        if "error" in answer:
            raise ScorerError(str(answer["error"]))
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
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
            hello = {"op": "version", "cpu_seconds": START_SECONDS}
            self._exchange(self.process, hello, START_SECONDS)
        return self.process

    def _exchange(
        self, process: subprocess.Popen[bytes], request: dict[str, Any], seconds: float
    ) -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise self._died(process) from None
        line = read_line(process, seconds)
        if not line.endswith(b"\n"):
            raise self._died(process)
        return dict(json.loads(line))

    def _died(self, process: subprocess.Popen[bytes]) -> Exception:
        """What the end of the process means for the answer it had."""
        code = process.wait()
        if code == -signal.SIGXCPU:
            return GraderTimeout(f"more than {self.cpu_seconds:g} s of processor time")
        if code in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP):
            return GraderLost(f"the scorer was ended by {signal.Signals(-code).name}")
        if code > 0:
            return InputError("reasoning-gym cannot be loaded; install it with: pip install reasoning-gym")
        return ScorerError(f"the scorer's process ended with code {code}")


def read_line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """One line of its output; a shorter rest if it ended. Raises TimeoutError."""
    assert process.stdout is not None
    parts: list[bytes] = []
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while not (parts and parts[-1].endswith(b"\n")):
            if not ready.select(max(until - time.monotonic(), 0.0)):
                raise TimeoutError(f"no score within {seconds:g} s")
            part = os.read(process.stdout.fileno(), 1 << 20)
            if not part:
                break
            parts.append(part)
    return b"".join(parts)


@cache
def shared_scorer() -> Scorer:
    """One scorer for all tasks of this process."""
    return Scorer()
