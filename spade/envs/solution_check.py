"""Judges a solution by a check program that never shares a process with it. See `solutions.py`."""

from __future__ import annotations

import asyncio
import builtins
import symtable
from typing import TYPE_CHECKING, Any

from spade.envs.solution_peer import (
    FORGED,
    SOLUTION_MODULES,
    Failed,
    Peer,
    SolutionLimits,
    SolutionResult,
    SolutionVerdict,
    judged,
)
from spade.errors import ConfigError, InputError

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox

MAX_NESTED = 50
"""Depth to which a solution and its check program may call each other."""


async def run_script(
    sandbox: Sandbox,
    code: str,
    test_code: str,
    limits: SolutionLimits | None = None,
    *,
    prelude: str = "",
    entry: str | None = None,
) -> SolutionResult:
    """Judge a solution by a check program full of asserts, as HumanEval and MBPP do; one test in all.

    Run in one process, such asserts prove little: the solution can leave by `sys.exit(0)`, patch the
    built-ins, return an object that equals everything, or look up the caller's frame. So two processes are
    used. The solution runs in one. The check program runs in the other, with pristine built-ins; each name
    it does not define itself stands for the solution's, and a call of it is carried out over there, arguments
    and result crossing as plain values (`plain.py`) of exact built-in types. Lists, dicts and sets changed in
    place are brought up to date, functions passed as arguments are called back. What remains to a solution is
    to return values, without having seen what they will be compared with.

    What is different from one process: an object of a class of the solution's own reaches the check program
    as a stand-in that can be called, handed back and asked for attributes, and equals only itself; the limits
    hold per call, with `wall_seconds` for the whole.

    Built-in names are never the solution's, except `entry`: name it where the tested function is called like
    a built-in one (`sum` in MBPP). Raises InputError if the check program does not parse or asks for nothing
    of the solution, ConfigError where the sandbox has room for one worker only.
    """
    limits = limits or SolutionLimits()
    names = sorted({*free_names(test_code), *([entry] if entry else [])})
    modules = [n for n in names if n in SOLUTION_MODULES]
    wanted = [n for n in names if n not in modules]
    if not wanted:
        raise InputError("The check program uses no function of the solution; name it with `entry`.")
    load = {"code": code, "prelude": prelude, "name": "solution", "side": "a", "cap": limits.output_bytes}
    check = {"code": test_code, "modules": modules, "names": wanted, "side": "b"}

    async def one() -> tuple[bool, str]:
        solution, checker = await _pair(sandbox, limits)
        try:
            async with asyncio.timeout(limits.wall_seconds):
                await solution.need("load", load)
                answer = await _converse(checker, solution, await checker.ask("check", check), 0)
        except TimeoutError:
            raise Failed(
                SolutionVerdict.TIME_LIMIT, f"not done within {limits.wall_seconds:g} s", True
            ) from None
        finally:
            solution.close()
            checker.close()
        if "error" in answer:
            failed = solution.failure(answer)
            line = answer.get("line", 0)
            raise Failed(failed.verdict, f"check line {line}: {failed.detail}" if line else failed.detail)
        return answer == {"ok": 1}, ""

    return SolutionResult((await judged(one),), 1)


async def _pair(sandbox: Sandbox, limits: SolutionLimits) -> tuple[Peer, Peer]:
    """Two processes, taken one caller at a time: callers that hold one each and wait would wait for ever."""
    if sandbox.cfg.max_workers < 2:
        raise ConfigError(
            "sandbox.max_workers is 1; a check program needs a second worker, so set 2 or more."
        )
    async with sandbox.pairs:
        first = await Peer.start(sandbox, limits)
        try:
            return first, await Peer.start(sandbox, limits)
        except BaseException:
            first.close()
            raise


async def _converse(asker: Peer, other: Peer, answer: dict[str, Any], depth: int) -> dict[str, Any]:
    """Carry questions of `asker` to `other` and answers back until `asker` is done; its last answer."""
    while "ask" in answer:
        verb, request = _question(answer["ask"], depth)
        replied = await _converse(other, asker, await other.ask(verb, request), depth + 1)
        answer = await asker.ask("answer", _sanitized(replied))
    return answer


def _question(asked: Any, depth: int) -> tuple[str, dict[str, Any]]:
    """A question in its checked form; both sides are treated alike."""
    if type(asked) is dict and type(request := asked.get("request")) is dict and depth < MAX_NESTED:
        match asked.get("verb"), request:
            case "get", {"name": str(name)}:
                return "get", {"name": name}
            case "call", {"target": str() | list() as target, "args": list(args), "kwargs": dict(kwargs)}:
                return "call", {"target": target, "args": args, "kwargs": kwargs}
            case "attr", {"handle": list(handle), "name": str(name), "new": list(new)}:
                return "attr", {"handle": handle, "name": name, "new": new}
    raise Failed(SolutionVerdict.REFUSED, "a malformed or endlessly nested question")


def _sanitized(answer: dict[str, Any]) -> dict[str, Any]:
    """What of an answer may reach the process that asked."""
    if "error" in answer:
        return {name: str(answer.get(name))[:500] for name in ("error", "detail", "raised")}
    changed = answer.get("changed", {})
    if "value" not in answer or type(changed) is not dict:
        raise Failed(SolutionVerdict.REFUSED, FORGED)
    return {"value": answer["value"], "changed": changed}


def free_names(test_code: str) -> list[str]:
    """Global names a check program uses and does not bind: built-ins left out. Raises InputError."""
    try:
        top = symtable.symtable(test_code, "<check>", "exec")
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError(f"The check program of a benchmark item does not parse ({error}).") from error
    used: set[str] = set()
    bound: set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        for symbol in table.get_symbols():
            binds = symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
            if binds and (table is top or symbol.is_declared_global()):
                bound.add(symbol.get_name())
            elif symbol.is_referenced() and (table is top or symbol.is_global()):
                used.add(symbol.get_name())
        tables += table.get_children()
    return sorted(used - bound - set(dir(builtins)))
