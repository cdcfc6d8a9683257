"""The validator: is this program a game worth playing? Stages run in order and fail closed.

A verdict is deterministic: seeds are fixed, results do not depend on what runs beside it. Nothing is judged
inside a worker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from spade.envs.bench import Bench
from spade.envs.fingerprint import NoveltyIndex
from spade.envs.sandbox import Sandbox
from spade.envs.screen import Refused
from spade.envs.stages import STAGES
from spade.errors import ConfigError, FaultCode, ProgramFault, SandboxError
from spade.types import EnvProgram, StageResult, Verdict

if TYPE_CHECKING:
    from spade.config import ValidateConfig

BATTERY_VERSION = "1"
"""Changes with any seed, policy, sample size or rule of the battery."""
RETRIES = 2
"""Repetitions of a validation disturbed from outside: a lost worker, or a limit of wall time only."""


async def validate(
    program: EnvProgram,
    sandbox: Sandbox,
    cfg: ValidateConfig,
    known: NoveltyIndex | None = None,
    min_oracle_turns: int | None = None,
) -> Verdict:
    """Judge one program. Raises SandboxError when workers keep getting lost (nobody's verdict)."""
    check_stage_names(cfg)
    turns = cfg.min_oracle_turns if min_oracle_turns is None else min_oracle_turns
    for attempt in range(RETRIES + 1):
        bench = Bench(program, sandbox, cfg, turns, known)
        try:
            verdict = await _judge(bench)
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


async def _judge(bench: Bench) -> Verdict:
    results: list[StageResult] = []
    for name, stage in STAGES.items():
        if not bench.cfg.stages.get(name, True):
            continue
        started = time.monotonic()
        code, detail = "ok", ""
        try:
            await stage(bench)
        except Refused as refusal:
            code, detail = refusal.code, refusal.detail
        except ProgramFault as fault:
            if fault.code is FaultCode.LOST:
                raise  # nobody's verdict
            code, detail = fault.code.value, fault.detail or "no detail"
        results.append(StageResult(name, code == "ok", code, detail, time.monotonic() - started))
        if code != "ok":
            break
    accepted = bool(results) and all(r.ok for r in results)
    return Verdict(
        bench.program.id, accepted, tuple(results), BATTERY_VERSION, bench.sandbox.level, dict(bench.facts)
    )


def check_stage_names(cfg: ValidateConfig) -> None:
    """Raise ConfigError if the config names a stage that does not exist."""
    for name in cfg.stages:
        if name not in STAGES:
            raise ConfigError(
                f"There is no validation stage {name!r} (validator.stages); use one of {', '.join(STAGES)}."
            )


async def validate_many(
    programs: Sequence[EnvProgram],
    sandbox: Sandbox,
    cfg: ValidateConfig,
    known: NoveltyIndex | None = None,
    min_oracle_turns: int | Sequence[int | None] | None = None,
    *,
    concurrency: int = 8,
    on_done: Callable[[], None] | None = None,
) -> list[Verdict]:
    """Judge many programs at once; verdicts in the order of `programs`. `known` is read, not changed.

    `on_done` is called after each one.
    """
    gate = asyncio.Semaphore(max(1, min(concurrency, sandbox.cfg.max_workers // 2)))

    async def one(program: EnvProgram, turns: int | None) -> Verdict:
        async with gate:
            verdict = await validate(program, sandbox, cfg, known, turns)
        if on_done is not None:
            on_done()
        return verdict

    if min_oracle_turns is None or isinstance(min_oracle_turns, int):
        min_oracle_turns = [min_oracle_turns] * len(programs)
    pairs = zip(programs, min_oracle_turns, strict=True)
    return list(await asyncio.gather(*(one(p, t) for p, t in pairs)))
