"""Endurance of the sandbox: many programs, good, broken and hostile mixed; then nothing may be left behind.

    python benchmarks/soak.py [--programs 10000] [--at-once 16]

Good and broken programs go through the validator, hostile ones straight into a worker, where they are reset
and stepped once. Afterwards there must be no child process, no further open descriptor and no new temporary
file, and the parent's memory must have stopped growing. Prints one JSON document; exit code 1 if something is
left. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from spade.config import SandboxConfig, ValidateConfig
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate
from spade.errors import ProgramFault
from spade.types import EnvProgram

CPU_SECONDS = 0.25
"""Short, so that programs that loop for ever cost little; a good program needs a thousandth of it."""
WARM_UP = 0.2
"""Share of the programs after which memory is first measured: caches and buffers are full then."""
GROWTH_MIB = 16.0
"""Largest growth of the parent after the warm-up: less than 2 KiB for each of 10,000 programs."""

GAME = """
import random

class CountEnv:
    max_turns = 2

    def reset(self, seed=None):
        self.turn = 0
        self.a, self.b = random.Random(seed).sample(range(1000, 9999), 2)
        return f"Add {self.a}, {self.b} and {OFFSET}.", {}

    def step(self, action):
        self.turn += 1
        won = action == f"\\\\boxed{{{self.a + self.b + OFFSET}}}"
        return "right" if won else "wrong", float(won), won, not won and self.turn >= 2, {}

    def solution(self):
        return str(self.a + self.b + OFFSET)

OFFSET = @
"""
LIFE = """
class OddEnv:
    max_turns = 2
    def reset(self, seed=None):
        return "go", {{}}
    def step(self, action):
        {step}
        return "on", 0.0, False, False, {{}}
    def solution(self):
        return "x"
"""
BROKEN = {
    "syntax": "class BadEnv(:\n    pass\n",
    "raises": LIFE.format(step="raise ValueError('no')"),
    "shape": LIFE.format(step="return 'on'"),
    "unsolvable": LIFE.format(step="pass"),
}
HOSTILE = {
    "endless": LIFE.format(step="while True: pass"),
    "memory": LIFE.format(step="x = [0] * 10**9"),
    "exit": LIFE.format(step="import os; os._exit(0)"),
    "fork": LIFE.format(step="import os; os.fork()"),
    "files": LIFE.format(step="open('/tmp/spade_soak', 'w')"),
    "flood": LIFE.format(step="return 'x' * 10**8, 0.0, False, False, {}"),
    "recursion": LIFE.format(step="f = lambda: f(); f()"),
}


async def one(number: int, sandbox: Sandbox) -> str:
    """What became of program `number`: two of three are good or broken, every third is hostile."""
    if number % 3 == 2:
        name = list(HOSTILE)[number // 3 % len(HOSTILE)]
        try:
            worker = await sandbox.open(HOSTILE[name])
        except ProgramFault as fault:
            return f"hostile {name}: {fault.code}"
        try:
            await worker.reset(0, seed=1)
            await worker.step(0, "go")
        except ProgramFault as fault:
            return f"hostile {name}: {fault.code}"
        finally:
            await worker.close()
        return f"hostile {name}: harmless"
    good = number % 3 == 0
    name = "good" if good else list(BROKEN)[number // 3 % len(BROKEN)]
    code = GAME.replace("@", str(number)) if good else BROKEN[name]
    verdict = await validate(EnvProgram.of(code), sandbox, ValidateConfig(floor_max=0.05))
    return f"{'good' if good else f'broken {name}'}: {verdict.code}"


def leftovers() -> dict[str, int]:
    """Child processes, open descriptors and temporary files of this process."""
    own = Path("/proc/self/task").glob("*/children")
    return {
        "children": sum(len(thread.read_text().split()) for thread in own),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "temporary_files": len(list(Path(tempfile.gettempdir()).glob("spade*"))),
    }


def memory_mib() -> float:
    """Resident memory of this process in MiB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def soak(programs: int, at_once: int) -> tuple[Counter[str], float]:
    """Outcomes by kind, and the growth of memory after the warm-up in MiB."""
    outcomes: Counter[str] = Counter()
    warm: float | None = None
    async with await Sandbox.start(SandboxConfig(cpu_seconds=CPU_SECONDS)) as sandbox:
        for start in range(0, programs, at_once):
            batch = range(start, min(start + at_once, programs))
            outcomes.update(await asyncio.gather(*(one(number, sandbox) for number in batch)))
            if warm is None and start >= WARM_UP * programs:
                warm = memory_mib()
    return outcomes, memory_mib() - (warm or memory_mib())


def main() -> int:
    """Run, print what happened, and say whether anything was left."""
    parser = argparse.ArgumentParser(description="endurance of the sandbox")
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=16)
    args = parser.parse_args()
    if sys.platform != "linux":
        parser.error("the soak reads /proc and runs on Linux only")
    asyncio.run(asyncio.sleep(0))  # whatever asyncio opens once is open now
    before, started = leftovers(), time.monotonic()
    outcomes, growth = asyncio.run(soak(args.programs, args.at_once))
    left = {name: count - before[name] for name, count in leftovers().items()}
    seconds = time.monotonic() - started
    wrong = [name for name in outcomes if name.startswith("good") and name != "good: accepted"]
    wrong += [name for name in outcomes if name.startswith("broken") and name.endswith(": accepted")]
    report = {
        "programs": args.programs,
        "seconds": round(seconds, 1),
        "outcomes": dict(sorted(outcomes.items())),
        "left": left,
        "growth_mib": round(growth, 1),
        "wrong": wrong,
    }
    print(json.dumps(report, indent=2))
    return 1 if any(left.values()) or growth > GROWTH_MIB or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
