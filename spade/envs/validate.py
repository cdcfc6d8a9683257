"""The validator: is this program a game worth playing? Stages run in order and fail closed.

A verdict is deterministic: seeds are fixed, results do not depend on what runs beside it. Nothing is judged
inside a worker.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from spade.deadlines import all_in_time
from spade.envs.battery import BATTERY_VERSION, Step, plan
from spade.envs.bench import Bench, Judge
from spade.envs.fingerprint import NoveltyIndex
from spade.envs.judge import UNJUDGED, JudgeUnreachable
from spade.envs.sandbox import Sandbox
from spade.envs.screen import Refused
from spade.errors import FaultCode, ProgramFault, SandboxError
from spade.types import EnvProgram, StageResult, Verdict

if TYPE_CHECKING:
    from spade.config import ValidateConfig

DEADLINE = "deadline"
"""Reason code of a program whose validation was not through in time."""
RETRIES = 2
"""Repetitions of a validation disturbed from outside: a lost worker, or a limit of wall time only."""


async def validate(
    program: EnvProgram,
    sandbox: Sandbox,
    cfg: ValidateConfig,
    known: NoveltyIndex | None = None,
    min_oracle_turns: int | None = None,
    *,
    game_type: str | None = None,
    judge: Judge | None = None,
) -> Verdict:
    """Judge one program.

    `min_oracle_turns` and `game_type` replace the config's number and the program's own word; `judge` answers
    the stage of that name. Raises ConfigError for stages or parameters that do not exist, SandboxError when
    workers keep getting lost, and JudgeUnreachable when the judge's model fails (both are nobody's verdict).
    """
    return await run_steps(program, sandbox, cfg, plan(cfg), known, min_oracle_turns, game_type, judge)


async def run_steps(
    program: EnvProgram,
    sandbox: Sandbox,
    cfg: ValidateConfig,
    steps: Sequence[Step],
    known: NoveltyIndex | None = None,
    min_oracle_turns: int | None = None,
    game_type: str | None = None,
    judge: Judge | None = None,
) -> Verdict:
    """`validate` with the steps given; a validation disturbed from outside is repeated."""
    turns = cfg.min_oracle_turns if min_oracle_turns is None else min_oracle_turns
    for attempt in range(RETRIES + 1):
        bench = Bench(program, sandbox, cfg, turns, known, game_type, judge)
        try:
            verdict = await _judge(bench, steps)
        except ProgramFault as fault:
            if attempt == RETRIES:
                raise SandboxError(
                    f"Validation lost its worker {RETRIES + 1} times ({fault.detail})."
                ) from fault
            continue
        finally:
            await bench.close()
        if verdict.code != FaultCode.WALL_LIMIT or attempt == RETRIES:
            return verdict
    raise AssertionError("unreachable")


async def _judge(bench: Bench, steps: Sequence[Step]) -> Verdict:
    results: list[StageResult] = []
    for step in steps:
        started = time.monotonic()
        code, detail = "ok", ""
        try:
            await step.run(bench)
        except Refused as refusal:
            code, detail = refusal.code, refusal.detail
        except ProgramFault as fault:
            if fault.code is FaultCode.LOST:
                raise  # nobody's verdict
            code, detail = reason_of(fault)
        results.append(StageResult(step.name, code == "ok", code, detail, time.monotonic() - started))
        if code != "ok":
            break
    accepted = bool(results) and all(r.ok for r in results)
    return Verdict(
        bench.program.id,
        accepted,
        tuple(results),
        BATTERY_VERSION,
        bench.sandbox.level,
        dict(bench.facts),
        seeds=tuple(p.seed for p in bench.probes),
        python=platform.python_version(),
        sketch=bench.sketch,
    )


def unjudged(program: EnvProgram, level: str, name: str, code: str, text: str) -> Verdict:
    """The verdict on a program that nobody has judged, through no fault of its own."""
    stage = StageResult(name, False, code, text, 0.0)
    return Verdict(program.id, False, (stage,), BATTERY_VERSION, level, judged=False)


def reason_of(fault: ProgramFault) -> tuple[str, str]:
    """Reason code and sentence for a program's fault: the sandbox's code, or a more telling one."""
    code, detail = fault.code.value, fault.detail or "no detail"
    if fault.code is FaultCode.EXCEPTION and detail.startswith("SystemExit"):
        return "system_exit", f"The program tried to end its process ({detail})."
    if fault.code is FaultCode.CONTRACT:
        if detail.startswith("the reward of step must be finite"):
            return "reward_not_finite", detail
        if detail.startswith("the observations of one episode exceed"):
            return "observation_too_long", detail
    return code, detail


async def validate_many(
    programs: Sequence[EnvProgram],
    sandbox: Sandbox,
    cfg: ValidateConfig,
    known: NoveltyIndex | None = None,
    min_oracle_turns: int | Sequence[int | None] | None = None,
    *,
    concurrency: int = 8,
    on_done: Callable[[], None] | None = None,
    game_type: str | None = None,
    judge: Judge | None = None,
) -> list[Verdict]:
    """Judge many programs at once; verdicts in the order of `programs`. `known` is read, not changed.

    `on_done` is called after each one; the other arguments are those of `validate`. A program whose judge
    cannot be reached, or that is not through after `cfg.seconds`, gets a verdict that says so
    (`Verdict.judged` is false); the others are not held up.
    """
    gate = asyncio.Semaphore(at_once(sandbox, concurrency))

    async def one(program: EnvProgram, turns: int | None) -> Verdict:
        async with gate:
            work = validate(program, sandbox, cfg, known, turns, game_type=game_type, judge=judge)
            try:
                (found,) = await all_in_time([work], cfg.seconds, "validator.seconds")
                verdict = found or too_late(program, sandbox, cfg.seconds)
            except JudgeUnreachable as error:
                verdict = unjudged(program, sandbox.level, "judge", UNJUDGED, str(error))
        if on_done is not None:
            on_done()
        return verdict

    if min_oracle_turns is None or isinstance(min_oracle_turns, int):
        min_oracle_turns = [min_oracle_turns] * len(programs)
    pairs = zip(programs, min_oracle_turns, strict=True)
    return list(await asyncio.gather(*(one(p, t) for p, t in pairs)))


def at_once(sandbox: Sandbox, wanted: int = 8) -> int:
    """Validations side by side: each may hold one worker and wait for a second."""
    return max(1, min(wanted, sandbox.cfg.max_workers // 2))


def too_late(program: EnvProgram, sandbox: Sandbox, seconds: float) -> Verdict:
    """The verdict on a program that was not through after `seconds`."""
    text = f"There was no verdict within validator.seconds ({seconds:g} s); the program has to answer faster."
    return unjudged(program, sandbox.level, DEADLINE, DEADLINE, text)
