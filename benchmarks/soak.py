"""Endurance of the sandbox: many programs, good, broken and hostile mixed; then nothing may be left behind.

    python benchmarks/soak.py [--programs 10000] [--seconds 0] [--at-once 16]

Programs are made by `soak_programs.py`; those in `$SPADE_SHARED/cases` are mixed in. Good and broken ones go
through the validator, hostile ones straight into a worker, where they are reset and stepped once. Afterwards
there must be no child process, no further open descriptor and no new temporary file, and the parent's memory
must have been flat over the last two thirds. Prints one JSON document; exit code 1 if something is left or a
program ended as it must not. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

if __package__:
    from benchmarks.soak_programs import Sample, samples
else:
    from soak_programs import Sample, samples  # run as a script

from spade.config import SandboxConfig, ValidateConfig
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate
from spade.errors import FaultCode, ProgramFault
from spade.types import EnvProgram

CPU_SECONDS = 0.2
"""Short, so that programs that loop for ever cost little; a good program needs a thousandth of it."""
WALL_FACTOR = 25.0
"""Generous, since programs run side by side on a machine that may be busy; only sleepers take that long."""
SHARE_DISTURBED = 0.01
"""Programs that may be disturbed from outside: a lost worker, or no CPU time for so long."""
WARM_UP = 1 / 3
"""Share of the programs before memory is judged: caches and buffers are full then."""
GROWTH_MIB = 8.0
"""Largest growth of the parent over the rest, by its slope: about 1 KiB for each of 10,000 programs."""
READINGS = 60
"""Memory readings in the whole run."""
WANTED = ("/tmp/spade_soak", "/tmp/spade_pwn", "/dev/shm/spade_soak")
"""Files that hostile programs try to make."""


@dataclass
class Record:
    """What happened: outcomes by kind of program, and the memory of this process after so many programs."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    disturbed: list[str] = field(default_factory=list)
    memory: list[tuple[int, float]] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Programs that are through."""
        return sum(self.outcomes.values())

    def add(self, sample: Sample, outcome: str) -> None:
        """Count one program and judge its end. What a busy machine did to it is counted apart."""
        self.outcomes[f"{sample.kind}: {outcome}"] += 1
        good = sample.kind.startswith("good")
        right = outcome in sample.allowed if sample.allowed is not None else True
        if sample.validated:
            right = (outcome == "accepted") == good
        if not right:
            disturbed = outcome in (FaultCode.LOST, FaultCode.WALL_LIMIT)
            (self.disturbed if disturbed else self.wrong).append(f"{sample.kind}: {outcome}")

    def slope(self) -> tuple[float, float]:
        """KiB a program over the last two thirds (least squares), and the growth in MiB that this makes."""
        last = [(n, mib) for n, mib in self.memory if n >= WARM_UP * self.done]
        if len(last) < 3:
            return 0.0, 0.0
        line = statistics.linear_regression(*zip(*last, strict=True))
        return line.slope * 1024, line.slope * (last[-1][0] - last[0][0])


async def fate(sample: Sample, sandbox: Sandbox) -> str:
    """What becomes of a program: a reason code of the validator, a fault code, or `harmless`."""
    if sample.validated:
        verdict = await validate(EnvProgram.of(sample.code), sandbox, ValidateConfig(floor_max=0.05))
        return verdict.code
    try:
        worker = await sandbox.open(sample.code)
    except ProgramFault as fault:
        return fault.code
    try:
        await worker.reset(0, seed=1)
        await worker.step(0, "go")
    except ProgramFault as fault:
        return fault.code
    finally:
        await worker.close()
    return "harmless"


async def soak(programs: int, seconds: float, at_once: int, folder: Path | None) -> Record:
    """Put `programs` through the sandbox, fewer if `seconds` (0 = no limit) are over before."""
    record, stop = Record(), time.monotonic() + (seconds or float("inf"))
    every = max(1, programs // READINGS)
    source: Iterator[Sample] = islice(samples(folder), programs)

    async def consumer(sandbox: Sandbox) -> None:
        for sample in source:
            record.add(sample, await fate(sample, sandbox))
            if record.done % every == 0:
                record.memory.append((record.done, memory_mib()))
                print(f"soak: {record.done} of {programs} programs", file=sys.stderr)
            if time.monotonic() > stop:
                return

    async with await Sandbox.start(
        SandboxConfig(cpu_seconds=CPU_SECONDS, wall_factor=WALL_FACTOR)
    ) as sandbox:
        await asyncio.gather(*(consumer(sandbox) for _ in range(at_once)))
    return record


def leftovers() -> dict[str, int]:
    """Child processes, open descriptors and temporary files, those hostile programs try to make included."""
    own = Path("/proc/self/task").glob("*/children")
    return {
        "children": sum(len(thread.read_text().split()) for thread in own),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "temporary_files": len(os.listdir(tempfile.gettempdir())) + sum(map(os.path.exists, WANTED)),
    }


def memory_mib() -> float:
    """Resident memory of this process in MiB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def run(programs: int, seconds: float, at_once: int, folder: Path | None) -> dict[str, Any]:
    """The whole soak as a report; `ok` is the judgement."""
    asyncio.run(asyncio.sleep(0))  # whatever asyncio opens once is open now
    with tempfile.TemporaryDirectory() as tempfile.tempdir:  # of our own, since others use the common one
        before, started = leftovers(), time.monotonic()
        record = asyncio.run(soak(programs, seconds, at_once, folder))
        left = {name: count - before[name] for name, count in leftovers().items()}
    tempfile.tempdir = None
    slope, growth = record.slope()
    return {
        "programs": record.done,
        "seconds": round(time.monotonic() - started, 1),
        "left": left,
        "memory_mib": [round(mib, 1) for _, mib in record.memory],
        "slope_kib_per_program": round(slope, 3),
        "growth_mib": round(growth, 2),
        "disturbed": record.disturbed,
        "wrong": record.wrong,
        "outcomes": dict(sorted(record.outcomes.items())),
        "ok": not any(left.values())
        and growth <= GROWTH_MIB
        and not record.wrong
        and len(record.disturbed) <= max(3, SHARE_DISTURBED * record.done),
    }


def cases_folder() -> Path | None:
    """The folder of shared cases, if there is one."""
    folder = Path(os.environ.get("SPADE_SHARED", "")) / "cases"
    return folder if "SPADE_SHARED" in os.environ and folder.is_dir() else None


def main() -> int:
    """Run, print what happened, and say whether anything was left."""
    parser = argparse.ArgumentParser(description="endurance of the sandbox")
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after this time (default: never)")
    parser.add_argument("--at-once", type=int, default=16)
    args = parser.parse_args()
    if sys.platform != "linux":
        parser.error("the soak reads /proc and runs on Linux only")
    report = run(args.programs, args.seconds, args.at_once, cases_folder())
    print(json.dumps(report, indent=2))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
