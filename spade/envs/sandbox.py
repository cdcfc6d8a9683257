"""Runs environment programs in confined processes of their own. The one entry point of the rest of SPADE.

    async with await Sandbox.start(cfg) as sandbox:
        worker = await sandbox.open(code)          # ProgramFault if it does not load
        observation = await worker.reset(0, seed=1)
        answer = await worker.step(0, "\\boxed{4}")

A fault of the program is a `ProgramFault` (raised by the conveniences, a value in `batch`); `SandboxError`
means the sandbox itself cannot work.

Reuse: a program whose verdict is `reusable` may be played again in the process that it was played in before.
Then `borrow` and `give_back` take the place of `open` and `close`: an idle worker is reset instead of being
replaced, up to `sandbox.episodes_per_worker` times, and gives way when room is needed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, cast

from spade.envs.channels import Channels
from spade.envs.death import Ended
from spade.envs.levels import establish
from spade.envs.link import PROGRAMS, Guest, ZygoteLink
from spade.envs.loaded import REUSE_STAGES, Worker, reusable
from spade.envs.process import Process, raise_fault
from spade.envs.wire import Op, ProgramInfo
from spade.errors import FaultCode, ProgramFault, SandboxError

if TYPE_CHECKING:
    from spade.config import SandboxConfig

__all__ = ["BANNER", "REUSE_STAGES", "SPARES", "LinkKey", "Sandbox", "Worker", "reusable"]

LinkKey = tuple[int, int, Guest]
"""A zygote by its string hash seed, the memory of its workers in MiB, and what they run."""
REPLAY_HASH_SEED = 2
"""String hash seed of the second zygote, which replays what the first (seed 1) did."""
LONGEST_SWEEP = 0.1
SHORTEST_SWEEP = 0.005
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
FORKS_AT_ONCE = 16
"""Workers a zygote is asked for before it has delivered: its control socket has room for some hundreds."""
SPARES = 2
"""Empty workers kept ready for `open`: forked and confined in advance, which is most of the time it takes."""
BANNER = "WARNING: environment programs run without isolation (sandbox level L0, sandbox.allow_unsafe=true)."


class Sandbox:
    """Starts workers at one isolation level. Made by `start`, ended by `close` or `async with`."""

    def __init__(self, cfg: SandboxConfig, link: ZygoteLink, outcomes: dict[str, bool]) -> None:
        self.cfg = cfg
        self.level = link.level
        self.place = link.place
        """The level and, at L3, who made the namespaces."""
        self.self_test = outcomes
        """What the self-test worker tried, and whether it was refused."""
        self.refused = tuple(link.refused)
        """Why nothing stronger could be had, one sentence for each attempt."""
        self._links: dict[LinkKey, ZygoteLink] = {(1, cfg.memory_mb, PROGRAMS): link}
        self._link_lock = asyncio.Lock()
        self._channels = Channels()
        self._room = asyncio.Semaphore(cfg.max_workers)
        self.pairs = asyncio.Lock()
        """To be held by whoever waits for two workers at once."""
        self._forks = asyncio.Semaphore(FORKS_AT_ONCE)
        self._waiting = 0
        self._idle: dict[Worker, None] = {}  # given back and kept, the oldest first
        self._spares: dict[LinkKey, list[Process]] = {}
        self._processes: set[Process] = set()
        self._busy: set[Process] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._numbers = count(1)
        self._closed = False

    @classmethod
    async def start(cls, cfg: SandboxConfig) -> Sandbox:
        """Find the level and start. Raises SandboxError below `cfg.min_level`, ConfigError on odd levels."""
        link, outcomes = await establish(
            cfg.force_level, cfg.min_level, cfg.allow_unsafe, cfg.memory_mb, cfg.numpy
        )
        sandbox = cls(cfg, link, outcomes)
        sandbox._banner()
        return sandbox

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _banner(self) -> None:
        if self.level == "L0":
            print(BANNER, file=sys.stderr)

    async def open(self, code: str, *, replay: bool = False, strict: bool = True) -> Worker:
        """Load a program in a new worker. Raises ProgramFault if it does not load.

        `replay` uses the second zygote (another string hash seed, another address layout). Without `strict`
        forbidden attempts are only noted in `Worker.violations`. Waits while `max_workers` are alive.
        """
        cpu = self.cfg.cpu_seconds
        key = (REPLAY_HASH_SEED if replay else 1, self.cfg.memory_mb, PROGRAMS)
        process = await self.start_process(key, cpu, cpu * self.cfg.wall_factor)
        asyncio.get_running_loop().call_soon(self._refill, key, cpu, cpu * self.cfg.wall_factor)
        worker = Worker(process, ProgramInfo("", "", 0, False, False), strict)
        worker.code = code
        try:
            (result,) = await worker.batch([Op.load(code)])
            worker.info = cast(ProgramInfo, raise_fault(result))
        except ProgramFault:
            await worker.close()
            raise
        return worker

    async def borrow(self, code: str) -> Worker:
        """A worker that holds the program: an idle one that was given back, or a new one as by `open`.

        Its instances have played before and must be reset. Only for programs whose verdict is `reusable`.
        """
        for worker in self._idle:
            if worker.code == code:
                del self._idle[worker]
                worker.uses += 1
                return worker
        return await self.open(code)

    async def give_back(self, worker: Worker) -> None:
        """Keep a borrowed worker for the next one who asks for its program; close it if it is worn out."""
        if worker.ended is not None or self._closed:
            return
        if self._waiting or worker.uses >= self.cfg.episodes_per_worker or worker.violations:
            await worker.close()
        else:
            self._idle[worker] = None

    @property
    def processes(self) -> int:
        """Worker processes that were handed out and exist; killed ones count until they are gone."""
        spares = sum(len(spares) for spares in self._spares.values())
        return sum(len(link.children) for link in self._links.values()) - spares

    async def start_process(self, key: LinkKey, cpu_seconds: float, wall_seconds: float) -> Process:
        """A bare worker of any kind, with limits per operation. Waits while `max_workers` are alive."""
        if self._room.locked() and self._idle:
            await next(iter(self._idle)).close()
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1
        try:
            if (spares := self._spares.get(key)) and not self._closed:
                process = spares.pop()
                process.limits = cpu_seconds, wall_seconds
            else:
                process = await self._fork(key, cpu_seconds, wall_seconds)
        except BaseException:
            self._room.release()
            raise
        process.on_end, process.on_busy = self._ended, self._became_busy
        self._processes.add(process)
        return process

    async def _fork(self, key: LinkKey, cpu_seconds: float, wall_seconds: float) -> Process:
        await self._forks.acquire()
        try:
            link = await self._link(key)
            process = Process(next(self._numbers), link, cpu_seconds, wall_seconds, self._channels)
        except BaseException:
            self._forks.release()
            raise
        process.on_forked = lambda _: self._forks.release()
        return process

    def _refill(self, key: LinkKey, cpu_seconds: float, wall_seconds: float) -> None:
        """Ask for the spares that are missing, unless many workers are being made anyway."""
        spares, link = self._spares.setdefault(key, []), self._links.get(key)
        while (
            len(spares) < SPARES
            and link is not None
            and not (link.dead or self._closed or self._forks.locked())
        ):
            process = Process(next(self._numbers), link, cpu_seconds, wall_seconds, self._channels)
            process.on_end = spares.remove
            spares.append(process)

    async def _link(self, key: LinkKey) -> ZygoteLink:
        async with self._link_lock:
            if self._closed:
                raise SandboxError("The sandbox is closed.")
            link = self._links.get(key)
            if link is None or link.dead:
                if link is not None:
                    await link.close()
                hash_seed, memory_mb, guest = key
                link = await ZygoteLink.start(self.place, hash_seed, memory_mb, self.cfg.numpy, guest)
                self._links[key] = link
            return link

    def _ended(self, process: Process) -> None:
        if process in self._processes:
            self._processes.discard(process)
            if self._idle:
                self._idle = {worker: None for worker in self._idle if worker.ended is None}
            self._room.release()

    def _became_busy(self, process: Process) -> bool:
        self._busy.add(process)
        if self._sweep is None:
            self._arm(min(LONGEST_SWEEP, self.cfg.cpu_seconds))
        return len(self._processes) - len(self._idle) == 1 and CORES > 1

    def _arm(self, seconds: float) -> None:
        self._sweep = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """Enforce limits; runs only while some worker owes an answer."""
        self._sweep = None
        self._busy = {p for p in self._busy if p.busy}
        left = [p.remaining() for p in list(self._busy)]
        if left:
            longest = min(LONGEST_SWEEP, self.cfg.cpu_seconds)
            self._arm(min(longest, max(SHORTEST_SWEEP, min(left))))

    async def close(self) -> None:
        """End every worker and every zygote; nothing of this sandbox is left running."""
        if self._closed:
            return
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for process in [*self._processes, *(spare for spares in self._spares.values() for spare in spares)]:
            process.end(Ended.CLOSED, FaultCode.LOST, "the sandbox was closed")
        self._channels.close()
        async with self._link_lock:
            links, self._links = list(self._links.values()), {}
            await asyncio.gather(*(link.close() for link in links))
        self._banner()
