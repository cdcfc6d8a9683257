"""`spade envs run`: load, reset, one step, and what happened."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

from spade.config import SandboxConfig
from spade.envs.reading import UnreadableProgram, printable, read_program, settings, split_overrides
from spade.envs.sandbox import Sandbox, Worker
from spade.errors import FaultCode, InputError, ProgramFault, SandboxError
from spade.types import EnvProgram

OUTCOMES = {
    FaultCode.CPU_LIMIT: "killed",
    FaultCode.WALL_LIMIT: "killed",
    FaultCode.LOST: "killed",  # lost again and again while the sandbox is well: see `_settled`
    FaultCode.CRASH: "crashed",
    FaultCode.POLICY: "crashed",  # the kernel ended it; attempts merely refused do not come as faults
    FaultCode.PROTOCOL: "bad_frames",
}
"""Outcome of `spade envs run` by fault; every other fault is "refused"."""
RETRIES = 2
"""Repetitions for a program whose worker was lost."""
PROBE = "class ProbeEnv:\n    def reset(self, seed=None): return 'x', {}\n    def step(self, a): pass\n"
"""Loads in any sandbox that works."""


def cmd_run(args: argparse.Namespace) -> int:
    """Run every file once; exit status 0 whatever the programs do."""
    names, overrides = split_overrides(args.files)
    if not names:
        raise InputError("No program is named; give Python files beside the overrides.")
    programs = [(name, _read(name)) for name in names]
    limits = {"cpu_seconds": args.deadline, "wall_factor": 1.0, "memory_mb": args.memory}
    cfg = settings(overrides, args.level, **limits).sandbox
    rows = asyncio.run(_run_all(programs, cfg, args.seed, args.action))
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        where = f"{row['outcome']} at {row['stage']} ({row['level']}, {row['seconds']:.3f} s)"
        print(f"{printable(row['file'])}  {where}")
        for text in (row["detail"], row["observation"]):
            if text:
                print("  " + printable(text).replace("\n", "\n  "))
    return 0


def _read(name: str) -> EnvProgram | UnreadableProgram:
    try:
        return read_program(name)
    except UnreadableProgram as error:
        if error.code == "unreadable":
            raise  # not the program's doing
        return error


async def _run_all(
    programs: Sequence[tuple[str, EnvProgram | UnreadableProgram]],
    cfg: SandboxConfig,
    seed: int,
    action: str,
) -> list[dict[str, Any]]:
    """One after the other: side by side they would take each other's wall time."""
    rows = []
    async with await Sandbox.start(cfg) as sandbox:
        for name, program in programs:
            if isinstance(program, EnvProgram):
                rows.append(await _settled(name, program, sandbox, seed, action))
            else:
                rows.append(_row(name, sandbox.level, "load", ("refused", str(program), ""), 0.0))
    return rows


async def _settled(
    file: str, program: EnvProgram, sandbox: Sandbox, seed: int, action: str
) -> dict[str, Any]:
    """`run_once`, again while the worker gets lost. Raises SandboxError if no program can be run."""
    for attempt in range(RETRIES + 1):
        try:
            return await run_once(file, program, sandbox, seed, action, keep_lost=attempt == RETRIES)
        except ProgramFault as fault:
            lost = fault
    raise AssertionError(lost)


async def run_once(
    file: str, program: EnvProgram, sandbox: Sandbox, seed: int, action: str, *, keep_lost: bool = True
) -> dict[str, Any]:
    """Load, reset with `seed`, one step with `action`: one line of `run --json`.

    A lost worker is raised as ProgramFault, or with `keep_lost` an outcome, provided that another program
    can still be opened; else SandboxError.
    """
    started = time.monotonic()
    stage, observation = "load", ""
    worker: Worker | None = None
    try:
        worker = await sandbox.open(program.code, strict=False)
        stage = "reset"
        observation = await worker.reset(0, seed)
        stage = "step"
        result = await worker.step(0, action)
        observation = result.observation
        outcome = "ok"
        detail = f"reward {result.reward:g}, terminated {result.terminated}, truncated {result.truncated}"
        if worker.violations:
            outcome, detail = "refused", f"policy: it tried {', '.join(worker.violations)}; {detail}"
    except ProgramFault as fault:
        if fault.code is FaultCode.LOST:
            await _still_well(file, fault, sandbox, keep_lost)
        outcome, detail = OUTCOMES.get(fault.code, "refused"), str(fault)
    finally:
        seconds = time.monotonic() - started
        if worker is not None:
            await worker.close()
    return _row(file, sandbox.level, stage, (outcome, detail, observation), seconds)


async def _still_well(file: str, fault: ProgramFault, sandbox: Sandbox, keep_lost: bool) -> None:
    if not keep_lost:
        raise fault
    try:
        await (await sandbox.open(PROBE)).close()
    except ProgramFault as other:
        text = f"The sandbox lost the worker of {file} ({fault.detail}) and starts no other; try again."
        raise SandboxError(text) from other


def _row(file: str, level: str, stage: str, result: tuple[str, str, str], seconds: float) -> dict[str, Any]:
    outcome, detail, observation = result
    return {
        "file": file,
        "level": level,
        "stage": stage,
        "outcome": outcome,
        "detail": detail,
        "observation": observation,
        "seconds": round(seconds, 4),
    }
