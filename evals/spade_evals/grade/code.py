"""Judges programs by a benchmark's own tests in the sandbox, and says it as a grade.

A program is right when every test passed. A worker lost to the machine is tried again, and at last raised
(`ProgramFault`, code LOST): it says nothing of the program. As many programs are judged at once as there are
processors, so that a full machine does not turn into time-outs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from spade.envs.solutions import (
    FunctionTest,
    SolutionLimits,
    SolutionResult,
    SolutionVerdict,
    StdinTest,
    run_function,
    run_script,
    run_stdin,
)
from spade.errors import FaultCode, ProgramFault
from spade_evals.question import Grade

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox

TRIES: Final = 3
"""Times a program whose worker was lost is judged."""

LIMITS: Final = SolutionLimits(cpu_seconds=6.0)
"""Per test, not per program: what LiveCodeBench gives, and plenty for the others."""

_MODULES = (
    "bisect", "builtins", "collections", "copy", "datetime", "functools", "heapq", "io", "itertools", "json",
    "math", "operator", "random", "re", "statistics", "string", "sys",
)  # fmt: skip
_STARRED = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics",
    "itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip
CONTEST_PRELUDE: Final = "\n".join(
    [f"from {name} import *" for name in _STARRED]
    + [f"import {name}" for name in _MODULES]
    + ["sys.setrecursionlimit(50000)", ""]
)
"""What LiveCodeBench runs before every program: contest sites import these for their users."""

_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def judge_stdin(sandbox: Sandbox, program: str, tests: Sequence[StdinTest]) -> Grade:
    """A program that reads and prints; ends at the first test that fails."""
    return await _judged(program, lambda: run_stdin(sandbox, program, tests, LIMITS, prelude=CONTEST_PRELUDE))


async def judge_function(sandbox: Sandbox, program: str, name: str, tests: Sequence[FunctionTest]) -> Grade:
    """The method `name` of class `Solution`, or the function `name`; ends at the first test that fails."""
    return await _judged(
        program, lambda: run_function(sandbox, program, name, tests, LIMITS, prelude=CONTEST_PRELUDE)
    )


async def judge_script(sandbox: Sandbox, program: str, check: str, entry: str) -> Grade:
    """A program judged by asserts on its function `entry`, which run in a process of their own."""
    return await _judged(program, lambda: run_script(sandbox, program, check, LIMITS, entry=entry))


async def _judged(program: str, run: Callable[[], Awaitable[SolutionResult]]) -> Grade:
    gate = _gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_processors()))
    async with gate:
        result = await _patiently(run)
    return Grade.of(result.passed, program, "" if result.passed else described(result))


async def _patiently(run: Callable[[], Awaitable[SolutionResult]]) -> SolutionResult:
    """The result, asked for again while the worker is lost. Raises ProgramFault (LOST) in the end."""
    for last in (*[False] * (TRIES - 1), True):
        try:
            return await run()
        except ProgramFault as fault:
            if last or fault.code is not FaultCode.LOST:
                raise
    raise AssertionError


def described(result: SolutionResult) -> str:
    """The first test that failed, and why: "test 3 of 12: time_limit"."""
    failed = ((i, t) for i, t in enumerate(result.tests, 1) if t.verdict is not SolutionVerdict.PASSED)
    number, test = next(failed, (len(result.tests), None))
    if test is None:
        return f"only {number} of {result.asked} tests were run"
    where = f"test {number} of {result.asked}: " if result.asked > 1 else ""
    return f"{where}{test.verdict.value}" + (f": {test.detail}" if test.detail else "")


def contest_tests(tests: Sequence[dict[str, Any]], function: str) -> list[StdinTest] | list[FunctionTest]:
    """LiveCodeBench's tests (`packed_tests.decode_tests`) as the sandbox takes them. Raises InputError."""
    if function:
        return [FunctionTest.parse(test["input"], test["output"]) for test in tests]
    return [StdinTest(test["input"], test["output"]) for test in tests]


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
