"""`spade envs validate | run | play`: judge, try and play environment programs from the command line."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from spade.config import SandboxConfig, ValidateConfig
from spade.envs.contract import FULL_RETURN, MAX_TURNS, solution_actions, wrap_action
from spade.envs.floors import words
from spade.envs.levels import ORDER
from spade.envs.sandbox import Sandbox, Worker
from spade.envs.validate import validate_many
from spade.errors import FaultCode, InputError, ProgramFault
from spade.types import EnvProgram, Verdict

OUTCOMES = {
    FaultCode.CPU_LIMIT: "killed",
    FaultCode.WALL_LIMIT: "killed",
    FaultCode.LOST: "killed",
    FaultCode.CRASH: "crashed",
    FaultCode.POLICY: "crashed",  # the kernel ended it; attempts merely refused do not come as faults
    FaultCode.PROTOCOL: "bad_frames",
}
"""Outcome of `spade envs run` by fault; every other fault is "refused"."""
PROGRESS_FROM = 5
"""Files from which on a progress bar is shown."""


def add_parsers(sub: Any) -> None:
    """Add the three verbs to an argparse sub-parser collection."""
    check = sub.add_parser("validate", help="judge programs: is this a game worth playing?")
    check.add_argument("files", nargs="+", metavar="FILE_OR_DIR")
    check.add_argument("--floor-max", type=float, help="highest return of a player without skill")
    check.add_argument("--min-oracle-turns", type=int, help="fewest turns the program's solution may need")
    check.set_defaults(handler=cmd_validate)

    run = sub.add_parser("run", help="load, reset and step programs in the sandbox, and say what happened")
    run.add_argument("files", nargs="+", metavar="FILE")
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--action", default="go", help="the text that reaches step, unchanged")
    run.add_argument("--deadline", type=float, default=1.0, help="seconds of CPU and of wall time per call")
    run.add_argument("--memory", type=int, default=128, help="MiB per program")
    run.set_defaults(handler=cmd_run)

    play = sub.add_parser("play", help="play one program in the terminal")
    play.add_argument("file", metavar="FILE")
    play.add_argument("--seed", type=int, default=0)
    play.add_argument("--hint", action="store_true", help="show the program's own hint first")
    play.add_argument("--policy", choices=("oracle", "random", "noop"), help="let a script play")
    play.set_defaults(handler=cmd_play)

    for parser in (check, run, play):
        parser.add_argument("--level", choices=ORDER, help="isolation level; the strongest by default")
        parser.add_argument("--json", action="store_true", help="print JSON on standard output")


def read_program(path: str | Path) -> EnvProgram:
    """A program from a file. Raises InputError if it cannot be read."""
    try:
        return EnvProgram.of(Path(path).read_text(encoding="utf-8", errors="replace"), source=str(path))
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}; name a Python file.") from error


def program_files(names: Sequence[str]) -> list[Path]:
    """Files named, and all `*.py` below folders named, sorted. Raises InputError for what does not exist."""
    found: list[Path] = []
    for name in names:
        path = Path(name)
        if path.is_dir():
            inside = sorted(path.rglob("*.py"))
            if not inside:
                raise InputError(f"There is no Python file in {path}.")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise InputError(f"There is no file {path}.")
    return found


def sandbox_config(args: argparse.Namespace, **limits: Any) -> SandboxConfig:
    """Sandbox settings of a command line."""
    chosen = {} if args.level is None else {"force_level": args.level, "min_level": args.level}
    return SandboxConfig(**chosen, **limits)


# --- validate ------------------------------------------------------------------------------------------


def cmd_validate(args: argparse.Namespace) -> int:
    """Judge every file; exit status 1 if any is rejected."""
    files = program_files(args.files)
    programs = [read_program(f) for f in files]
    given = {"floor_max": args.floor_max, "min_oracle_turns": args.min_oracle_turns}
    cfg = ValidateConfig(**{k: v for k, v in given.items() if v is not None})
    verdicts = asyncio.run(_validate(programs, cfg, sandbox_config(args)))
    rows = [verdict_row(str(f), v) for f, v in zip(files, verdicts, strict=True)]
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        print(_table(rows))
    return 0 if all(v.accepted for v in verdicts) else 1


async def _validate(
    programs: Sequence[EnvProgram], cfg: ValidateConfig, sandbox_cfg: SandboxConfig
) -> list[Verdict]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    shown = len(programs) >= PROGRESS_FROM and console.is_terminal
    async with await Sandbox.start(sandbox_cfg) as sandbox:
        with Progress(console=console, disable=not shown, transient=True) as progress:
            task = progress.add_task("validating", total=len(programs))
            return await validate_many(programs, sandbox, cfg, on_done=lambda: progress.advance(task))


def verdict_row(file: str, verdict: Verdict) -> dict[str, Any]:
    """One line of `validate --json`."""
    failed = verdict.failed
    return {
        "file": file,
        "accepted": verdict.accepted,
        "stage": failed.stage if failed else None,
        "code": verdict.code,
        "reason": failed.detail if failed else "",
        "seconds": round(sum(s.seconds for s in verdict.stages), 4),
    }


def _table(rows: Sequence[dict[str, Any]]) -> str:
    width = max(len(r["file"]) for r in rows)
    lines = []
    for r in rows:
        verdict = "accepted" if r["accepted"] else f"rejected at {r['stage']} ({r['code']}): {r['reason']}"
        lines.append(f"{r['file']:<{width}}  {r['seconds'] * 1e3:6.0f} ms  {verdict}")
    accepted = sum(r["accepted"] for r in rows)
    return "\n".join([*lines, f"{accepted} of {len(rows)} accepted"])


# --- run -----------------------------------------------------------------------------------------------


def cmd_run(args: argparse.Namespace) -> int:
    """Run every file once; exit status 0 whatever the programs do."""
    programs = {name: read_program(name) for name in args.files}
    if args.deadline <= 0 or args.memory < 16:
        raise InputError("--deadline must be positive and --memory at least 16 (MiB).")
    limits = {"cpu_seconds": args.deadline, "wall_factor": 1.0, "memory_mb": args.memory}
    rows = asyncio.run(_run_all(programs, sandbox_config(args, **limits), args.seed, args.action))
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        print(f"{row['file']}  {row['outcome']} at {row['stage']} ({row['level']}, {row['seconds']:.3f} s)")
        print("\n".join(f"  {text}" for text in (row["detail"], row["observation"]) if text))
    return 0


async def _run_all(
    programs: dict[str, EnvProgram], cfg: SandboxConfig, seed: int, action: str
) -> list[dict[str, Any]]:
    async with await Sandbox.start(cfg) as sandbox:
        return [await run_once(name, p, sandbox, seed, action) for name, p in programs.items()]


async def run_once(
    file: str, program: EnvProgram, sandbox: Sandbox, seed: int, action: str
) -> dict[str, Any]:
    """Load, reset with `seed`, one step with `action`: one line of `run --json`."""
    started = time.monotonic()
    row: dict[str, Any] = {"file": file, "level": sandbox.level, "stage": "load"}
    outcome, detail, observation = "ok", "", ""
    worker: Worker | None = None
    try:
        worker = await sandbox.open(program.code, strict=False)
        row["stage"] = "reset"
        observation = await worker.reset(0, seed)
        row["stage"] = "step"
        result = await worker.step(0, action)
        observation = result.observation
        detail = f"reward {result.reward:g}, terminated {result.terminated}, truncated {result.truncated}"
    except ProgramFault as fault:
        outcome, detail = OUTCOMES.get(fault.code, "refused"), str(fault)
    if worker is not None:
        if outcome == "ok" and worker.violations:
            outcome, detail = "refused", f"policy: it tried {', '.join(worker.violations)}; {detail}"
        await worker.close()
    seconds = round(time.monotonic() - started, 4)
    return {**row, "outcome": outcome, "detail": detail, "observation": observation, "seconds": seconds}


# --- play ----------------------------------------------------------------------------------------------


def cmd_play(args: argparse.Namespace) -> int:
    """Play one episode; exit status 0 whether it is won or lost."""
    program = read_program(args.file)
    row = asyncio.run(_play(program, sandbox_config(args, wall_factor=10.0), args))
    if args.json:
        print(json.dumps(row, indent=2))
    return 0


async def _play(program: EnvProgram, cfg: SandboxConfig, args: argparse.Namespace) -> dict[str, Any]:
    say: Callable[[str], None] = (lambda text: None) if args.json else print
    async with await Sandbox.start(cfg) as sandbox:
        try:
            worker = await sandbox.open(program.code)
            observation = await worker.reset(0, args.seed)
            say(observation)
            if args.hint:
                say(f"HINT: {await worker.hint(0)}" if worker.info.has_hint else "(this program has no hint)")
            script = await _script(worker, args.policy, args.seed)
            reward, turns, end = 0.0, 0, "given up"
            while turns < min(worker.info.turns, MAX_TURNS):
                if (text := await _next_action(script, observation, turns)) is None:
                    break
                if args.policy:
                    say(f"> {text}")
                result = await worker.step(
                    0, text if worker.info.game_type == "tool_use" else wrap_action(text)
                )
                observation, turns = result.observation, turns + 1
                say(observation)
                if result.terminated or result.truncated:
                    reward = result.reward if result.terminated else 0.0
                    end = "terminated" if result.terminated else "truncated"
                    break
            else:
                end = "turn limit"
        except ProgramFault as fault:
            raise InputError(f"{args.file} broke while it was played ({fault}).") from fault
        won = reward >= FULL_RETURN
        say(f"{'won' if won else 'not won'}: return {reward:g} after {turns} turns ({end})")
        return {
            "file": args.file,
            "seed": args.seed,
            "return": reward,
            "won": won,
            "turns": turns,
            "end": end,
        }


async def _script(worker: Worker, policy: str | None, seed: int) -> Callable[[str, int], str | None] | None:
    if policy == "oracle":
        if not worker.info.has_solution:
            raise InputError("This program has no method `solution`, so the oracle cannot play it.")
        plan = solution_actions(await worker.solution(0), worker.info.game_type)
        return lambda text, turn: plan[turn] if turn < len(plan) else None
    if policy == "random":
        rng = random.Random(seed)
        return lambda text, turn: rng.choice(words(text) or ["0"])
    return (lambda text, turn: "") if policy == "noop" else None


async def _next_action(
    script: Callable[[str, int], str | None] | None, observation: str, turn: int
) -> str | None:
    if script is not None:
        return script(observation, turn)
    print("> ", end="", flush=True, file=sys.stderr)
    line = await asyncio.to_thread(sys.stdin.readline)
    return line.rstrip("\n") if line else None
