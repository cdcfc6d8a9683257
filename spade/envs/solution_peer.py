"""The parent's end of a solution worker, and what a solution's verdict is made of. See `solutions.py`."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NoReturn

from spade.envs.contract import ALLOWED_MODULES
from spade.envs.link import Guest
from spade.envs.process import Ended, Process
from spade.envs.wire import Op
from spade.errors import FaultCode, ProgramFault

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox

MORE_MODULES: Final = (
    "__future__ argparse array ast atexit base64 binascii builtins calendar cmath codecs collections.abc "
    "colorsys contextlib copyreg csv difflib errno gc graphlib hashlib html inspect io keyword locale "
    "numbers os os.path pickle pprint queue reprlib resource secrets signal stat struct sys threading timeit "
    "traceback types unicodedata urllib.parse uuid warnings weakref zlib"
)
SOLUTION_MODULES: Final = tuple(sorted({*ALLOWED_MODULES, *MORE_MODULES.split()}))
"""Modules a solution may import: those of environment programs and what benchmark solutions commonly use."""

GUEST_FILES: Final = ("worker", "plain", "solution_io", "solution_worker")
REQUEST_CHUNK = 400_000
SHOWN = 2000
"""Characters of an output kept in a result."""
FORGED = "the process sent a forged answer"


class SolutionVerdict(StrEnum):
    """How one test ended."""

    PASSED = "passed"
    WRONG_ANSWER = "wrong_answer"
    RUNTIME_ERROR = "runtime_error"
    TIME_LIMIT = "time_limit"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    SYNTAX = "syntax"
    REFUSED = "refused"
    """It tried something the sandbox forbids, and failed; or it forged answers."""
    CRASH = "crash"
    """The process died without an answer: `os._exit`, a signal, an exhausted stack."""


_REPORTED = {
    v.value: v
    for v in (
        SolutionVerdict.RUNTIME_ERROR,
        SolutionVerdict.MEMORY_LIMIT,
        SolutionVerdict.OUTPUT_LIMIT,
        SolutionVerdict.SYNTAX,
        SolutionVerdict.WRONG_ANSWER,
    )
}
_OF_FAULT = {
    FaultCode.CPU_LIMIT: SolutionVerdict.TIME_LIMIT,
    FaultCode.WALL_LIMIT: SolutionVerdict.TIME_LIMIT,
    FaultCode.POLICY: SolutionVerdict.REFUSED,
    FaultCode.PROTOCOL: SolutionVerdict.REFUSED,
}


@dataclass(frozen=True, slots=True)
class SolutionLimits:
    """Limits of one test. CPU time decides; wall time stops what only waits, so it is generous."""

    cpu_seconds: float = 6.0
    wall_seconds: float = 60.0
    memory_mb: int = 1024
    stack_mb: int = 512
    """Part of `memory_mb` that deep recursion may take."""
    output_bytes: int = 4 << 20


@dataclass(frozen=True, slots=True)
class TestResult:
    """One test: its verdict, one line of detail, the wall seconds it took, what was printed or returned."""

    verdict: SolutionVerdict
    detail: str = ""
    seconds: float = 0.0
    output: str = ""
    """First characters of the output, or of the value's plain JSON."""

    __test__ = False


@dataclass(frozen=True, slots=True)
class SolutionResult:
    """All tests that were run, in order; shorter than `asked` when the first failure ended the run."""

    tests: tuple[TestResult, ...]
    asked: int

    @property
    def passed(self) -> bool:
        """Whether every test was run and passed."""
        return self.asked > 0 and len(self.tests) == self.asked and self.verdict is SolutionVerdict.PASSED

    @property
    def verdict(self) -> SolutionVerdict:
        """Of the first test that did not pass; PASSED if all did."""
        failed = (t.verdict for t in self.tests if t.verdict is not SolutionVerdict.PASSED)
        return next(failed, SolutionVerdict.PASSED)


# --- one process ---------------------------------------------------------------------------------------


class Failed(Exception):
    """A test ended with a verdict that is not PASSED."""

    def __init__(self, verdict: SolutionVerdict, detail: str, waited: bool = False) -> None:
        super().__init__(detail)
        self.verdict, self.detail = verdict, detail
        self.waited = waited
        """Ended by the wall limit, so perhaps only the machine was busy."""


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


_decode = json.JSONDecoder(parse_constant=_refuse).decode
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Peer:
    """A solution worker: JSON requests of any length out, JSON answers of limited length in."""

    def __init__(self, process: Process, limits: SolutionLimits) -> None:
        self.process, self.limits = process, limits

    @classmethod
    async def start(cls, sandbox: Sandbox, limits: SolutionLimits) -> Peer:
        """A fresh process. Waits for room in the sandbox."""
        guest = Guest(GUEST_FILES, SOLUTION_MODULES, limits.stack_mb)
        key = (1, limits.memory_mb, guest)
        return cls(await sandbox.start_process(key, limits.cpu_seconds, limits.wall_seconds), limits)

    def close(self) -> None:
        """End the process."""
        self.process.end(Ended.CLOSED, FaultCode.LOST, "the test is over")

    async def _one(self, verb: str, text: str) -> str:
        (result,) = await self.process.batch([Op.exchange(verb, text)])
        if isinstance(result, ProgramFault):
            if result.code is FaultCode.LOST:
                raise result
            verdict = _OF_FAULT.get(result.code, SolutionVerdict.CRASH)
            raise Failed(verdict, result.detail, result.code is FaultCode.WALL_LIMIT)
        return str(result)

    async def ask(self, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request. Raises Failed if there is none, ProgramFault if the worker is lost."""
        text = _encode(request)
        chunks = [text[i : i + REQUEST_CHUNK] for i in range(0, len(text), REQUEST_CHUNK)]
        for chunk in chunks[:-1]:
            await self._one("put", chunk)
        parts = [await self._one(verb, chunks[-1])]
        size = 0
        while parts[-1].startswith("+"):
            size += len(parts[-1])
            if size > 2 * self.limits.output_bytes:
                raise Failed(SolutionVerdict.OUTPUT_LIMIT, f"more than {self.limits.output_bytes} bytes")
            parts[-1] = parts[-1][1:]
            parts.append(await self._one("more", ""))
        try:
            answer = _decode("".join(parts))
        except (ValueError, RecursionError):
            answer = None
        if type(answer) is not dict:
            raise Failed(SolutionVerdict.REFUSED, FORGED)
        return answer

    async def need(self, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        """As `ask`; an error in the answer raises Failed too."""
        answer = await self.ask(verb, request)
        if "error" in answer:
            raise self.failure(answer)
        return answer

    def failure(self, answer: dict[str, Any]) -> Failed:
        """The verdict an error stands for: attempts at forbidden things explain an exception."""
        verdict = _REPORTED.get(str(answer.get("error")), SolutionVerdict.REFUSED)
        detail = str(answer.get("detail"))[:500]
        if verdict is SolutionVerdict.RUNTIME_ERROR and self.process.violations:
            return Failed(SolutionVerdict.REFUSED, f"it tried {self.process.violations[0]}; {detail}")
        return Failed(verdict, detail)


async def judged(attempt: Callable[[], Awaitable[tuple[bool, str]]]) -> TestResult:
    """The result of one test. One that hit the wall limit alone gets a second attempt."""
    started = time.monotonic()
    for last in (False, True):
        try:
            right, output = await attempt()
        except Failed as failed:
            if failed.waited and not last:
                continue
            return TestResult(failed.verdict, failed.detail, time.monotonic() - started)
        except RecursionError:  # only an answer nested as deeply as JSON can be read does that
            return TestResult(SolutionVerdict.REFUSED, FORGED, time.monotonic() - started)
        break
    verdict = SolutionVerdict.PASSED if right else SolutionVerdict.WRONG_ANSWER
    return TestResult(verdict, "", time.monotonic() - started, output[:SHOWN])
