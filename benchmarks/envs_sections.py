"""The sections of `envs.py`: each starts what it needs, measures, and returns figures."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from envs_figures import ACTIONS, FAST, ROUNDS, SEED, SLOW, Cost, Figure, Setting
from envs_steps import steps, threads

from spade.config import ValidateConfig
from spade.envs.sandbox import Sandbox, Worker, reusable
from spade.envs.validate import validate, validate_many
from spade.envs.wire import Op
from spade.errors import ProgramFault
from spade.types import EnvProgram

DEADLINE = 0.2
HANG = """
import time

class HangEnv:
    def reset(self, seed=None):
        return "go", {}

    def step(self, action):
        time.sleep(1e6) if action == "sleep" else None
        while True:
            pass
"""


async def spawn(setting: Setting) -> list[Figure]:
    """One at a time: a fresh worker, its program loaded, the first observation."""
    async with await setting.sandbox() as sandbox:
        await _first_observations(sandbox, setting, 20)  # warm
        with Cost() as cost:
            times = await _first_observations(sandbox, setting, setting.count(200, 20))
    note = cost.per(len(times))
    best, p95 = min(times) * 1e3, statistics.quantiles(times, n=20)[-1] * 1e3
    return [
        Figure("spawn to first observation, median", statistics.median(times) * 1e3, "ms", 5.0, True, note),
        Figure("spawn to first observation, best", best, "ms"),
        Figure("spawn to first observation, 95th percentile", p95, "ms"),
    ]


async def _first_observations(sandbox: Sandbox, setting: Setting, count: int) -> list[float]:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        worker = await sandbox.open(setting.programs[FAST])
        await worker.reset(0, SEED)
        times.append(time.perf_counter() - start)
        await worker.close()
    return times


async def lives(setting: Setting) -> list[Figure]:
    """Whole lives, four at a time: fork, load, reset, two steps, kill."""

    async def life(sandbox: Sandbox, count: int) -> None:
        for _ in range(count):
            worker = await sandbox.open(setting.programs[FAST])
            await worker.batch([Op.reset(0, SEED)] + [Op.step(0, ACTIONS[FAST])] * 2)
            await worker.close()

    count, cost = setting.count(100, 10), Cost()
    async with await setting.sandbox() as sandbox:
        await life(sandbox, 5)
        for _ in range(ROUNDS):
            with cost:
                await asyncio.gather(*(life(sandbox, count) for _ in range(4)))
                while sandbox.processes:
                    await asyncio.sleep(0.001)
    return [
        Figure("whole lives, four at a time", cost.rate(4 * count), "1/s", 200.0, note=cost.per(4 * count))
    ]


def memory_kib(pid: int) -> dict[str, int]:
    """`smaps_rollup` of a process in KiB: PSS, and what it shares with nobody (USS)."""
    rows = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]]
    kib = {row[0].rstrip(":"): int(row[1]) for row in rows}
    return {"pss": kib["Pss"], "uss": kib["Private_Clean"] + kib["Private_Dirty"]}


def available_kib() -> int:
    """Memory the machine has left."""
    rows = Path("/proc/meminfo").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("MemAvailable"))


async def memory(setting: Setting) -> list[Figure]:
    """Many workers alive at once: memory of each, and the time to start them and to be rid of them."""
    figures = []
    for count in (64, 512):
        if available_kib() < count * 16 * 1024:
            figures.append(Figure(f"{count} workers: not tried, too little memory", 0.0, ""))
            continue
        async with await setting.sandbox() as sandbox:
            before, start = available_kib(), time.perf_counter()
            workers = await asyncio.gather(*(sandbox.open(setting.programs[FAST]) for _ in range(count)))
            await asyncio.gather(*(w.reset(0, SEED) for w in workers))
            started = time.perf_counter() - start
            taken = before - available_kib()
            rows = [memory_kib(w.pid) for w in workers[:: count // 32] if w.pid is not None]
            rate = statistics.median([await _once(workers) for _ in range(ROUNDS)])
            start = time.perf_counter()
            await asyncio.gather(*(w.close() for w in workers))
            while sandbox.processes:
                await asyncio.sleep(0.001)
            ended = time.perf_counter() - start
        uss, pss = (statistics.median(row[kind] for row in rows) / 1024 for kind in ("uss", "pss"))
        note = f"PSS {pss:.2f} MiB, taken from the machine {taken / count / 1024:.2f} MiB each"
        figures += [
            Figure(f"{count} workers: private memory each", uss, "MiB", note=note),
            Figure(f"{count} workers: all started and reset", started, "s"),
            Figure(f"{count} workers: one step each", rate, "steps/s"),
            Figure(f"{count} workers: all killed and reaped", ended, "s"),
        ]
    return figures


async def _once(workers: Sequence[Worker]) -> float:
    start = time.perf_counter()
    await asyncio.gather(*(w.step(0, ACTIONS[FAST]) for w in workers))
    return len(workers) / (time.perf_counter() - start)


async def validations(setting: Setting) -> list[Figure]:
    """Verdicts a second, eight at once: all programs as they come, and the accepted ones alone."""
    programs = [EnvProgram.of(code) for code in setting.programs.values()]
    figures = []
    async with await setting.sandbox() as sandbox:
        cfg = ValidateConfig()
        verdicts = await validate_many(programs, sandbox, cfg)  # warm
        good = [p for p, verdict in zip(programs, verdicts, strict=True) if verdict.accepted]
        for name, kind, bar in (
            ("validations, mixed programs", programs, 12.0),
            ("of good programs", good, None),
        ):
            sample = (kind * 100)[: setting.count(48, 8)]
            with Cost() as cost:
                await validate_many(sample, sandbox, cfg, concurrency=8)
            note = f"{len(kind)} programs, {'aim 25, ' if bar else ''}{cost.per(len(sample))}"
            figures.append(Figure(name, cost.rate(len(sample)), "1/s", bar, note=note))
    return figures


async def kills(setting: Setting) -> list[Figure]:
    """Time from the deadline to the caller's fault, and to the end of the process: loops and sleeps."""
    told, gone = [], []
    # A sleeper uses no CPU time: only the limit of wall time ends it, here as long as that of CPU time.
    for action, factor in (("loop", 10.0), ("sleep", 1.0)):
        async with await setting.sandbox(cpu_seconds=DEADLINE, wall_factor=factor) as sandbox:
            for _ in range(setting.count(20, 2)):
                worker = await sandbox.open(HANG)
                await worker.reset(0, SEED)
                start = time.perf_counter()
                try:
                    await worker.step(0, action)
                except ProgramFault:
                    told.append(time.perf_counter() - start - DEADLINE)
                while sandbox.processes:
                    await asyncio.sleep(0.0005)
                gone.append(time.perf_counter() - start - DEADLINE)
    median, worst = statistics.median(gone) * 1e3, max(gone) * 1e3
    heard = statistics.median(told) * 1e3
    note = f"{len(gone)} kills, half loops, half sleeps; the caller hears of it after {heard:.1f} ms"
    return [
        Figure("killed and reaped after the deadline, median", median, "ms", 50.0, True, note),
        Figure("killed and reaped after the deadline, maximum", worst, "ms", 100.0, True),
    ]


async def reuse(setting: Setting) -> list[Figure]:
    """Episodes a second, one after the other: a fresh worker for each, against one that is reset."""
    figures = []
    async with await setting.sandbox(episodes_per_worker=10**6) as sandbox:
        for name in (FAST, SLOW):
            program = EnvProgram.of(setting.programs[name])
            if not reusable(await validate(program, sandbox, ValidateConfig())):
                figures.append(Figure(f"{name}: may not be reused", 0.0, ""))
                continue
            for way, take, give in (
                ("fresh worker", sandbox.open, Worker.close),
                ("worker reset", sandbox.borrow, lambda w: sandbox.give_back(w)),
            ):
                start = time.perf_counter()
                for seed in range(count := setting.count(100, 10)):
                    worker = await take(program.code)
                    await worker.reset(0, seed)
                    for _ in range(5):
                        await worker.step(0, ACTIONS[name])
                    await give(worker)
                rate = count / (time.perf_counter() - start)
                figures.append(Figure(f"{name}: episodes of 5 steps, {way}", rate, "1/s"))
    return figures


SECTIONS: tuple[Callable[[Setting], Awaitable[list[Figure]]], ...] = (
    spawn, lives, steps, threads, memory, validations, kills, reuse,
)  # fmt: skip
