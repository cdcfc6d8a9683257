"""`spade envs validate`: one verdict a file, as a table or as JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from spade.config import Config
from spade.deadlines import all_in_time
from spade.envs.battery import plan
from spade.envs.reading import (
    UnreadableProgram,
    printable,
    program_files,
    read_program,
    settings,
    split_overrides,
)
from spade.envs.sandbox import Sandbox
from spade.envs.validate import too_late, validate
from spade.errors import FaultCode, InputError, SandboxError
from spade.types import EnvProgram, GameType, Verdict

PROGRESS_FROM = 5
"""Files from which on progress is shown."""
AT_ONCE = 8
"""Programs judged at the same time: enough to keep two cores busy while some wait for their workers."""
FAULTS: dict[str, str] = {
    FaultCode.SYNTAX: "It is not Python: {}.",
    FaultCode.IMPORT_REFUSED: "An import failed: {}; use the modules of the contract only.",
    FaultCode.EXCEPTION: "It raised {}; no seed and no action may make a program raise.",
    FaultCode.CONTRACT: "It broke the contract: {}.",
    FaultCode.MEMORY: "It ran out of memory: {}; make it smaller or raise sandbox.memory_mb.",
    FaultCode.CPU_LIMIT: "It took too long: {}; make it faster or raise sandbox.cpu_seconds.",
    FaultCode.WALL_LIMIT: "It took too long: {}; a program must not sleep.",
    FaultCode.CRASH: "It ended its own process: {}.",
    FaultCode.POLICY: "It did something forbidden: {}; a game needs no files, sockets or processes.",
    FaultCode.PROTOCOL: "It disturbed the channel to its process: {}.",
}
"""What a program that broke while it was judged did, and what to do about it."""
HEADINGS = ("file", "verdict", "stage", "reason", "time")


def cmd_validate(args: argparse.Namespace) -> int:
    """Judge every file; exit status 1 if any is rejected."""
    names, overrides = split_overrides(args.files)
    if not names:
        raise InputError("No program is named; give Python files or folders beside the overrides.")
    flags = {"floor_max": args.floor_max, "min_oracle_turns": args.min_oracle_turns}
    overrides += [f"validator.{key}={value}" for key, value in flags.items() if value is not None]
    cfg = settings(overrides, args.level)
    plan(cfg.validator)  # an unknown stage is said before anything is read or started
    files = program_files(names)
    shown = args.counter(len(files), "validating") if len(files) >= PROGRESS_FROM else nullcontext()
    with shown as progress:
        done = progress.update if progress else lambda done: None
        rows = asyncio.run(_rows(files, cfg, args.type, done, args.judge if _asks_judge(cfg) else None))
    if args.json:
        print(json.dumps(rows, indent=2))
    elif sys.stdout.isatty():
        _print_rich(rows)
    else:
        print(plain_table(rows))
    return 0 if all(row["accepted"] for row in rows) else 1


async def _rows(
    files: Sequence[Path],
    cfg: Config,
    game_type: GameType | None,
    on_done: Callable[[int], None],
    open_judge: Callable[[Config], Any] | None,
) -> list[dict[str, Any]]:
    done = 0
    judge = await open_judge(cfg) if open_judge is not None else None
    gate = asyncio.Semaphore(max(1, min(AT_ONCE, cfg.sandbox.max_workers // 2)))
    async with await Sandbox.start(cfg.sandbox) as sandbox:

        async def one(file: Path) -> dict[str, Any]:
            nonlocal done
            async with gate:
                row = await _row(file, sandbox, cfg, game_type, judge)
            done += 1
            on_done(done)
            return row

        try:
            return list(await asyncio.gather(*map(one, files)))
        finally:
            if judge is not None:
                await judge.close()


def _asks_judge(cfg: Config) -> bool:
    """Whether the stage `judge` is on and has a model of its own."""
    on = any(step.name == "judge" for step in plan(cfg.validator))
    return on and cfg.validator.judge.model is not None


async def _row(
    file: Path, sandbox: Sandbox, cfg: Config, game_type: GameType | None, judge: Any = None
) -> dict[str, Any]:
    try:
        program: EnvProgram = read_program(file)
    except UnreadableProgram as error:
        return _line(file, False, "read", error.code, str(error), 0.0)
    try:
        work = validate(program, sandbox, cfg.validator, game_type=game_type, judge=judge)
        (found,) = await all_in_time([work], cfg.validator.seconds, "validator.seconds")
    except SandboxError as error:
        raise SandboxError(f"{file} has no verdict: {error}") from error
    return verdict_row(file, found or too_late(program, sandbox, cfg.validator.seconds))


def verdict_row(file: str | Path, verdict: Verdict) -> dict[str, Any]:
    """One line of `validate --json`."""
    failed = verdict.failed
    seconds = sum(s.seconds for s in verdict.stages)
    if failed is None:
        return _line(file, verdict.accepted, None, verdict.code, "", seconds)
    return _line(file, False, failed.stage, failed.code, sentence(failed.code, failed.detail), seconds)


def sentence(code: str, detail: str) -> str:
    """A stage's own sentence, or one made of a fault's detail such as `ValueError: x (line 3)`."""
    form = FAULTS.get(code)
    return detail if form is None or detail.endswith(".") else form.format(detail)


def _line(
    file: str | Path, accepted: bool, stage: str | None, code: str, reason: str, seconds: float
) -> dict[str, Any]:
    return {
        "file": str(file),
        "accepted": accepted,
        "stage": stage,
        "code": code,
        "reason": reason,
        "seconds": round(seconds, 4),
    }


# --- tables --------------------------------------------------------------------------------------------


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    verdict = "accepted" if row["accepted"] else "rejected"
    reason = f"{row['code']}: {' '.join(printable(row['reason']).split())}" if row["reason"] else ""
    return printable(row["file"]), verdict, row["stage"] or "", reason, f"{row['seconds']:.2f} s"


def _summary(rows: Sequence[dict[str, Any]]) -> str:
    return f"{sum(row['accepted'] for row in rows)} of {len(rows)} accepted"


def plain_table(rows: Sequence[dict[str, Any]]) -> str:
    """Aligned columns, one line a file, for files and pipes; the reason comes last since it is long."""
    order = (0, 1, 2, 4, 3)
    cells = [HEADINGS, *map(_cells, rows)]
    widths = [max(len(c[i]) for c in cells) for i in range(len(HEADINGS))]
    lines = ["  ".join(f"{c[i]:<{widths[i] if i != 3 else 0}}" for i in order).rstrip() for c in cells]
    return "\n".join([*lines, _summary(rows)])


def _print_rich(rows: Sequence[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading == "time" else "left", overflow="fold")
    for row in rows:
        style = "green" if row["accepted"] else "red"
        table.add_row(*(Text(cell, style if i == 1 else "") for i, cell in enumerate(_cells(row))))
    console = Console()
    console.print(table)
    console.print(_summary(rows), highlight=False)
