"""Runs environment programs in confined processes of their own. The one entry point of the rest of SPADE.

    async with await Sandbox.start(cfg) as sandbox:
        worker = await sandbox.open(code)          # ProgramFault if it does not load
        observation = await worker.reset(0, seed=1)
        answer = await worker.step(0, "\\boxed{4}")

A fault of the program is a `ProgramFault` (raised by the conveniences, a value in `batch`); `SandboxError`
means the sandbox itself cannot work.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, cast

from spade.envs.levels import establish
from spade.envs.link import ZygoteLink
from spade.envs.process import Ended, Process, raise_fault
from spade.envs.wire import Op, OpResult, PlayTrace, ProgramInfo, Request, StepResult
from spade.errors import FaultCode, ProgramFault, SandboxError

if TYPE_CHECKING:
    from spade.config import SandboxConfig

REPLAY_HASH_SEED = 2
"""String hash seed of the second zygote, which replays what the first (seed 1) did."""
LONGEST_SWEEP = 0.1
SHORTEST_SWEEP = 0.005
BANNER = "WARNING: environment programs run without isolation (sandbox level L0, sandbox.allow_unsafe=true)."


class Worker:
    """A loaded program in a process of its own. Instances are named by integers of the caller's choice."""

    def __init__(self, process: Process, info: ProgramInfo, strict: bool) -> None:
        self.info = info
        self._process = process
        self._strict = strict

    @property
    def ended(self) -> Ended | None:
        """How the process ended, or None while it lives."""
        return self._process.ended

    @property
    def violations(self) -> list[str]:
        """Forbidden things the program tried and was refused."""
        return self._process.violations

    async def batch(self, ops: Sequence[Request]) -> list[OpResult]:
        """Many operations in one message; see `Op`. Never raises for the program's faults.

        A killed or dead worker fails all remaining operations. A program that tried something forbidden gets
        POLICY for the whole batch and is closed.
        """
        results = await self._process.batch(ops)
        if self._strict and self._process.violations:
            fault = ProgramFault(FaultCode.POLICY, f"it tried {self._process.violations[0]}")
            self._process.end(Ended.CLOSED, fault.code, fault.detail)
            return [fault] * len(ops)
        return results

    async def _one(self, op: Request) -> object:
        return raise_fault((await self.batch([op]))[0])

    async def reset(self, i: int, seed: int) -> str:
        """Start an episode of instance `i`; first observation."""
        return cast(str, await self._one(Op.reset(i, seed)))

    async def step(self, i: int, action: str) -> StepResult:
        """One step of instance `i`."""
        return cast(StepResult, await self._one(Op.step(i, action)))

    async def solution(self, i: int) -> str | list[str]:
        """The program's own answer for instance `i`."""
        return cast("str | list[str]", await self._one(Op.solution(i)))

    async def hint(self, i: int) -> str:
        """The program's own hint for instance `i`."""
        return cast(str, await self._one(Op.hint(i)))

    async def play(
        self,
        i: int,
        seed: int,
        actions: Sequence[str],
        *,
        turns: int | None = None,
        after: Sequence[str] = (),
    ) -> PlayTrace:
        """Reset and all actions until the episode ends, in one message; see `Op.play`."""
        return cast(PlayTrace, await self._one(Op.play(i, seed, actions, turns=turns, after=after)))

    async def drop(self, i: int) -> None:
        """Forget instance `i`."""
        await self._one(Op.drop(i))

    async def close(self) -> None:
        """End the process."""
        self._process.end(Ended.CLOSED, FaultCode.LOST, "the worker was closed")


class Sandbox:
    """Starts workers at one isolation level. Made by `start`, ended by `close` or `async with`."""

    def __init__(self, cfg: SandboxConfig, link: ZygoteLink, outcomes: dict[str, bool]) -> None:
        self.cfg = cfg
        self.level = link.level
        self.self_test = outcomes
        """What the self-test worker tried, and whether it was refused."""
        self._links: dict[bool, ZygoteLink] = {False: link}
        self._link_lock = asyncio.Lock()
        self._room = asyncio.Semaphore(cfg.max_workers)
        self._processes: set[Process] = set()
        self._busy: set[Process] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._next_number = 1
        self._closed = False

    @classmethod
    async def start(cls, cfg: SandboxConfig) -> Sandbox:
        """Find the level and start. Raises SandboxError below `cfg.min_level`, ConfigError on odd levels."""
        link, outcomes = await establish(cfg.force_level, cfg.min_level, cfg.allow_unsafe, cfg.memory_mb)
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
        await self._room.acquire()
        try:
            process = await self._start_process(replay)
        except BaseException:
            self._room.release()
            raise
        worker = Worker(process, ProgramInfo("", "", 0, False, False), strict)
        try:
            (result,) = await worker.batch([Op.load(code)])
            worker.info = cast(ProgramInfo, raise_fault(result))
        except ProgramFault:
            await worker.close()
            raise
        return worker

    async def _start_process(self, replay: bool) -> Process:
        link = await self._link(replay)
        cpu = self.cfg.cpu_seconds
        process = Process(self._next_number, link, cpu, cpu * self.cfg.wall_factor)
        self._next_number += 1
        process.on_end, process.on_busy = self._ended, self._became_busy
        self._processes.add(process)
        return process

    async def _link(self, replay: bool) -> ZygoteLink:
        async with self._link_lock:
            if self._closed:
                raise SandboxError("The sandbox is closed.")
            link = self._links.get(replay)
            if link is None or link.dead:
                if link is not None:
                    await link.close()
                link = await ZygoteLink.start(
                    self.level, REPLAY_HASH_SEED if replay else 1, self.cfg.memory_mb
                )
                self._links[replay] = link
            return link

    def _ended(self, process: Process) -> None:
        if process in self._processes:
            self._processes.discard(process)
            self._room.release()

    def _became_busy(self, process: Process) -> None:
        self._busy.add(process)
        if self._sweep is None:
            self._arm(min(LONGEST_SWEEP, self.cfg.cpu_seconds))

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
        """End every worker and both zygotes; nothing of this sandbox is left running."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for process in list(self._processes):
            process.end(Ended.CLOSED, FaultCode.LOST, "the sandbox was closed")
        async with self._link_lock:
            links, self._links = list(self._links.values()), {}
            await asyncio.gather(*(link.close() for link in links))
        self._banner()
