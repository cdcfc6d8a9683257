"""The sections of `envs.py`: each starts what it needs, measures, and returns figures."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
import types
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from machine import tree_seconds

from spade.config import SandboxConfig, ValidateConfig
from spade.envs.sandbox import Sandbox, Worker, reusable
from spade.envs.validate import validate, validate_many
from spade.envs.wire import Op
from spade.errors import ProgramFault
from spade.types import EnvProgram

FAST, SLOW = "good_guess_multi_turn", "good_grid_walk"
"""The two programs that are stepped: about 1 microsecond a step, and about 100."""
ACTIONS = {FAST: "\\boxed{500}", SLOW: "\\boxed{up}"}
ROUNDS = 5
SEED = 1
DEADLINE = 0.2
THREADS = 128
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


@dataclass
class Figure:
    """One measured number. `bar` is what it must reach, from above if `lower` is true."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    lower: bool = False
    note: str = ""

    @property
    def missed(self) -> bool:
        """Whether there is a bar and the value is on the wrong side of it."""
        return self.bar is not None and (self.value > self.bar if self.lower else self.value < self.bar)


@dataclass(frozen=True)
class Setting:
    """What every section gets: programs by name, the sandbox settings, and the share of the work to do."""

    programs: dict[str, str]
    level: str | None = None
    scale: float = 1.0

    def sandbox(self, **changes: Any) -> Awaitable[Sandbox]:
        """A running sandbox; `changes` to the default limits."""
        return Sandbox.start(SandboxConfig(force_level=self.level, max_workers=600, **changes))

    def count(self, full: int, least: int = 1) -> int:
        """How many of something to do."""
        return max(least, round(full * self.scale))


class Cost:
    """CPU time of this process and of all it started, and wall time, summed over the times it is entered."""

    def __init__(self) -> None:
        self.parent = self.children = 0.0
        self.rounds: list[float] = []
        """Wall seconds, one entry each time."""

    def __enter__(self) -> Cost:
        self._children = tree_seconds(os.getpid(), itself=False)
        self._parent, self._start = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.rounds.append(time.perf_counter() - self._start)
        self.parent += time.process_time() - self._parent
        self.children += tree_seconds(os.getpid(), itself=False) - self._children

    def rate(self, count: int) -> float:
        """Operations a second, median of the rounds of `count` each."""
        return count / statistics.median(self.rounds)

    def per(self, count: int) -> str:
        """CPU microseconds per operation, as a note."""
        total = count * len(self.rounds)
        parent, children = self.parent / total * 1e6, self.children / total * 1e6
        return f"CPU parent {parent:,.1f} us, sandbox {children:,.1f} us"


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


def in_process(code: str) -> Any:
    """An instance of the program in this very process, reset: only for the programs measured here."""
    module = types.ModuleType("measured")
    exec(compile(code, "<measured>", "exec"), module.__dict__)
    env = next(v for k, v in module.__dict__.items() if k.endswith("Env"))()
    env.reset(SEED)
    return env


def plain(env: Any, action: str, count: int) -> None:
    """A plain loop of calls."""
    for _ in range(count):
        env.step(action)


async def single(worker: Worker, action: str, count: int) -> None:
    """Steps one by one, a message each."""
    for _ in range(count):
        await worker.step(0, action)


async def abreast(workers: Sequence[Worker], action: str, count: int) -> None:
    """The same for many workers, side by side."""
    await asyncio.gather(*(single(worker, action, count) for worker in workers))


async def batches(worker: Worker, action: str, size: int, count: int) -> None:
    """Messages of `size` steps."""
    for _ in range(count):
        await worker.batch([Op.step(0, action) for _ in range(size)])


@dataclass(frozen=True)
class Way:
    """One way to step: what it is called, how many steps `run` makes, and what they need."""

    name: str
    steps: int
    run: Callable[[], Awaitable[Any]]
    bar: float | None = None


async def steps(setting: Setting) -> list[Figure]:
    """Steps a second of both programs in three designs, beside the in-process call, in rounds of all."""
    figures = []
    for name, n in ((FAST, setting.count(400, 2)), (SLOW, setting.count(20, 2))):
        code, action = setting.programs[name], ACTIONS[name]
        async with await setting.sandbox() as sandbox, await setting.sandbox() as other:
            lone = await other.open(code)
            workers = [await sandbox.open(code) for _ in range(64)]
            await asyncio.gather(*(w.reset(0, SEED) for w in (lone, *workers)))
            bars = (15_000.0, 250_000.0) if name == FAST else (None, None)
            ways = [
                Way("1 worker x 1 a message", 8 * n, partial(single, lone, action, 8 * n)),
                Way("64 workers x 1 a message", 64 * n, partial(abreast, workers, action, n), bars[0]),
                Way("1 worker x 64 a message", 256 * n, partial(batches, lone, action, 64, 4 * n), bars[1]),
            ]
            figures += await compare(name, in_process(code), ways, setting)
    return figures


async def compare(name: str, env: Any, ways: Sequence[Way], setting: Setting) -> list[Figure]:
    """The rate of each way, median of rounds in turn, as such and as a share of the plain loop's."""
    costs = {way.name: Cost() for way in ways}
    count, usual = setting.count(100_000 if name == FAST else 1_000), Cost()
    for _ in range(ROUNDS):
        with usual:
            plain(env, ACTIONS[name], count)
        for way in ways:
            with costs[way.name]:
                await way.run()
    limit = usual.rate(count)
    note = f"best {count / min(usual.rounds):,.0f}, {usual.per(count).partition(', ')[0]}"
    figures = [Figure(f"{name}: in-process call", limit, "steps/s", note=note)]
    for way in ways:
        cost = costs[way.name]
        rate, best = cost.rate(way.steps), way.steps / min(cost.rounds)
        note = f"{rate / limit:.1%} of in-process, best {best:,.0f}, {cost.per(way.steps)}"
        figures.append(Figure(f"{name}: {way.name}", rate, "steps/s", way.bar, note=note))
    return figures


async def threads(setting: Setting) -> list[Figure]:
    """The same steps the published way: `exec` in this process, a thread pool, `wait_for`. No isolation."""
    loop, figures = asyncio.get_running_loop(), []
    with ThreadPoolExecutor(THREADS) as pool:

        async def play(env: Any, action: str, count: int) -> None:
            for _ in range(count):
                await asyncio.wait_for(loop.run_in_executor(pool, env.step, action), 30.0)

        for name in (FAST, SLOW):
            for at_once in (1, 64):
                envs = [in_process(setting.programs[name]) for _ in range(at_once)]
                count = setting.count((100 if name == FAST else 20) if at_once == 64 else 2000, 2)
                cost, total = Cost(), at_once * count
                for _ in range(ROUNDS):
                    with cost:
                        await asyncio.gather(*(play(env, ACTIONS[name], count) for env in envs))
                title, note = f"{name}: threads, {at_once} at once", cost.per(total).partition(", ")[0]
                figures.append(Figure(title, cost.rate(total), "steps/s", note=note))
    return figures


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
