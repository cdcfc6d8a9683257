"""Runs code-benchmark solutions in the sandbox: programs on standard input, functions, and check programs.

    result = await run_stdin(sandbox, code, [StdinTest("1 2\\n", "3\\n")])
    result = await run_function(sandbox, code, "add", [FunctionTest([1, 2], 3)])
    result = await run_script(sandbox, code, "assert add(1, 2) == 3")
    result.passed, result.verdict, result.tests

A solution passes when every test passed; a test without a verdict is a failed one. What a solution should
return never enters its process: outputs and values come out as text and plain JSON (`plain.py`) and are
judged here, or, for a check program, in a second process that the solution never enters. A worker lost to the
machine is nobody's failure: it raises `ProgramFault` with code LOST, and the caller may try again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Any

from spade.envs.plain import TooLarge, Writer, equals
from spade.envs.solution_check import run_script
from spade.envs.solution_peer import (
    FORGED,
    SOLUTION_MODULES,
    Failed,
    Peer,
    SolutionLimits,
    SolutionResult,
    SolutionVerdict,
    TestResult,
    judged,
)
from spade.errors import InputError

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox

__all__ = [
    "SOLUTION_MODULES",
    "FunctionTest",
    "SolutionLimits",
    "SolutionResult",
    "SolutionVerdict",
    "StdinTest",
    "TestResult",
    "run_function",
    "run_script",
    "run_stdin",
    "same_output",
]


@dataclass(frozen=True, slots=True)
class StdinTest:
    """One input of a program and what it must print."""

    stdin: str
    expected: str


@dataclass(frozen=True, slots=True)
class FunctionTest:
    """Arguments of one call and the value it must return, all plain JSON values."""

    args: Sequence[Any]
    expected: Any

    @classmethod
    def parse(cls, input_text: str, output_text: str) -> FunctionTest:
        """From LiveCodeBench's form: one JSON value a line and argument. Raises InputError."""
        try:
            lines = input_text.strip().split("\n") if input_text.strip() else []
            return cls([json.loads(line) for line in lines], json.loads(output_text))
        except ValueError as error:
            raise InputError(
                f"A test of the benchmark is not JSON ({error}); check the data file."
            ) from error


# --- comparing -----------------------------------------------------------------------------------------


def same_output(printed: str, expected: str) -> bool:
    """LiveCodeBench's rule for standard output.

    Both texts are stripped and cut at line ends; there must be as many lines, and each, stripped, must be
    equal as text or token by token as decimal numbers: `1.0` equals `1`, `0.3` does not equal
    `0.30000000000000004`.
    """
    ours, theirs = printed.strip().split("\n"), expected.strip().split("\n")
    return len(ours) == len(theirs) and all(map(_same_line, ours, theirs))


def _same_line(ours: str, theirs: str) -> bool:
    ours, theirs = ours.strip(), theirs.strip()
    if ours == theirs:
        return True
    left, right = ours.split(), theirs.split()
    if len(left) != len(right):
        return False
    try:
        return all(Decimal(a) == Decimal(b) for a, b in zip(left, right, strict=True))
    except InvalidOperation:  # not a number, or a signalling one
        return False


def _at_least_one(count: int) -> None:
    if not count:
        raise InputError("A solution was to be run without a single test; check the benchmark's data.")


# --- standard input and functions ----------------------------------------------------------------------


async def run_stdin(
    sandbox: Sandbox,
    code: str,
    tests: Sequence[StdinTest],
    limits: SolutionLimits | None = None,
    *,
    prelude: str = "",
    stop_at_first_failure: bool = True,
) -> SolutionResult:
    """Run a program on each input and compare what it prints (`same_output`).

    Every test has a process of its own, so no state survives. `prelude` (imports that a benchmark puts before
    every solution) runs in the same namespace. Raises ProgramFault (LOST), InputError without tests.
    """
    _at_least_one(len(tests))
    limits = limits or SolutionLimits()

    async def one(test: StdinTest) -> tuple[bool, str]:
        cap = min(limits.output_bytes, 4 * len(test.expected) + (1 << 20))
        request = {"code": code, "prelude": prelude, "stdin": test.stdin, "cap": cap}
        peer = await Peer.start(sandbox, limits)
        try:
            printed = (await peer.need("stdin", request)).get("out")
        finally:
            peer.close()
        if type(printed) is not str:
            raise Failed(SolutionVerdict.REFUSED, FORGED)
        return same_output(printed, test.expected), printed

    results: list[TestResult] = []
    for test in tests:
        results.append(await judged(partial(one, test)))
        if stop_at_first_failure and results[-1].verdict is not SolutionVerdict.PASSED:
            break
    return SolutionResult(tuple(results), len(tests))


async def run_function(
    sandbox: Sandbox,
    code: str,
    name: str,
    tests: Sequence[FunctionTest],
    limits: SolutionLimits | None = None,
    *,
    prelude: str = "",
    stop_at_first_failure: bool = True,
) -> SolutionResult:
    """Call the method `name` of class `Solution` (a new instance each time), or else the function `name`.

    The module is executed once and its state survives from test to test, as in LiveCodeBench; after a test
    that ended the process the next one starts a fresh one. Values are compared by `plain.equals`.
    """
    _at_least_one(len(tests))
    limits = limits or SolutionLimits()
    held: list[Peer] = []
    load = {"code": code, "prelude": prelude, "name": "solution", "side": "a", "cap": limits.output_bytes}

    async def one(test: FunctionTest) -> tuple[bool, str]:
        if not held or held[0].process.ended is not None:
            held[:] = [await Peer.start(sandbox, limits)]
            await held[0].need("load", load)
        args = [_plain(a) for a in test.args]
        answer = await held[0].need("call", {"target": name, "args": args, "kwargs": {}})
        if "value" not in answer:
            raise Failed(SolutionVerdict.REFUSED, FORGED)
        return equals(test.expected, answer["value"]), json.dumps(answer["value"])

    results: list[TestResult] = []
    try:
        for test in tests:
            results.append(await judged(partial(one, test)))
            failed = results[-1].verdict is not SolutionVerdict.PASSED
            if failed and (
                stop_at_first_failure or not held or results[-1].verdict is SolutionVerdict.SYNTAX
            ):
                break
    finally:
        if held:
            held[0].close()
    return SolutionResult(tuple(results), len(tests))


def _plain(value: Any) -> Any:
    """A JSON value of ours as plain JSON."""

    def export(value: Any) -> list[Any]:
        raise InputError(f"A test's argument is no JSON value but a {type(value).__name__}.")

    try:
        return Writer(export).encode(value)
    except TooLarge as error:
        raise InputError("A test's argument has too many parts.") from error
