"""Steps a second: in this process, in workers one by one and in batches, and in threads."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from envs_figures import ACTIONS, FAST, ROUNDS, SEED, SLOW, Cost, Figure, Setting

from spade.envs.sandbox import Worker
from spade.envs.wire import Op

THREADS = 128


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
    """Calls of `size` steps, each built, made and answered before the next."""
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
    """Steps a second of both programs in four designs, beside the in-process call, in rounds of all."""
    figures = []
    for name, n in ((FAST, setting.count(400, 2)), (SLOW, setting.count(20, 2))):
        code, action = setting.programs[name], ACTIONS[name]
        async with await setting.sandbox() as sandbox, await setting.sandbox() as other:
            lone = await other.open(code)
            workers = [await sandbox.open(code) for _ in range(64)]
            await asyncio.gather(*(w.reset(0, SEED) for w in (lone, *workers)))
            bars = (15_000.0, 250_000.0) if name == FAST else (None, None)
            # A call of 256 steps goes out as four messages of 64, of which more than one may be under way.
            ways = [
                Way("1 worker x 1 a message", 8 * n, partial(single, lone, action, 8 * n)),
                Way("64 workers x 1 a message", 64 * n, partial(abreast, workers, action, n), bars[0]),
                Way(
                    "1 worker x 64 a message, 4 a call",
                    256 * n,
                    partial(batches, lone, action, 256, n),
                    bars[1],
                ),
                Way("1 worker x 64 a call", 256 * n, partial(batches, lone, action, 64, 4 * n), None),
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
