"""Games of other libraries behind the interface that `spade.play` has to environment programs.

    play ──► HostedSandbox.open(text of a game) ──► HostedWorker.batch([reset, step]) ──► Host ──► process

A hosted game is a small JSON text in the place of a program's source: which library and version, which game,
which settings. Its hash is the id of the "program", so that another version of the library is another item.
A `Host` does the talking to the process; it may block, and runs in a thread.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Protocol

from spade.config import SandboxConfig
from spade.envs.contract import boxed_content
from spade.envs.wire import Request, StepResult
from spade.errors import FaultCode, ProgramFault
from spade.types import EnvProgram, GameType, Item, ItemResult
from spade_evals.suite import Setting
from spade_evals.suites.games import GamesSuite
from spade_evals.suites.games_pool import Game


class Host(Protocol):
    """One library in its process. Instances are named by integers that are never used twice.

    All methods may block. Each raises ProgramFault: the game broke, or with `FaultCode.LOST` the process was
    lost for reasons that have nothing to do with it.
    """

    def reset(self, instance: int, game: dict[str, Any], seed: int) -> str:
        """Start a game; the first observation."""
        ...

    def step(self, instance: int, action: str) -> StepResult:
        """One action, out of its box."""
        ...

    def solution(self, instance: int) -> str:
        """The library's own answer; empty when it has none."""
        ...

    def drop(self, instance: int) -> None:
        """Forget an instance."""
        ...

    def close(self) -> None:
        """End the process."""
        ...


def hosted_program(library: str, version: str, game: dict[str, Any], game_type: GameType) -> EnvProgram:
    """The record that stands for a game of a library."""
    text = json.dumps({"library": library, "version": version, **game}, sort_keys=True)
    return EnvProgram.of(text, game_type=game_type, source=library)


class HostedWorker:
    """The instances of one hosted game; they number themselves from 0 as those of a worker process do."""

    def __init__(self, sandbox: HostedSandbox, game: dict[str, Any]) -> None:
        self.sandbox, self.game = sandbox, game
        self.instances: dict[int, int] = {}

    async def batch(self, ops: Sequence[Request]) -> list[Any]:
        """Results of operations in order; a fault is a value in its place."""
        results: list[Any] = []
        for op in ops:
            try:
                results.append(await asyncio.to_thread(self._do, op))
            except ProgramFault as fault:
                results.append(fault)
        return results

    async def solution(self, number: int) -> str:
        """The library's own answer to an instance. Raises ProgramFault."""
        return await asyncio.to_thread(self.sandbox.host.solution, self.instances[number])

    async def close(self) -> None:
        """Forget all instances."""
        for instance in self.instances.values():
            await asyncio.to_thread(self.sandbox.host.drop, instance)
        self.instances = {}

    def _do(self, op: Request) -> str | StepResult | None:
        host, number = self.sandbox.host, op[1]
        if op[0] == "r":
            self.instances[number] = self.sandbox.next_instance()
            return host.reset(self.instances[number], self.game, op[2])
        if op[0] == "s":
            inner = boxed_content(op[2])
            return host.step(self.instances[number], op[2] if inner is None else inner.strip())
        if number in self.instances:  # drop
            host.drop(self.instances.pop(number))
        return None


class HostedSandbox:
    """What `spade.play.schedule` uses of a sandbox."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.cfg = SandboxConfig()
        self._count = 0

    def next_instance(self) -> int:
        """A number that was never used."""
        self._count += 1
        return self._count

    async def open(self, code: str) -> HostedWorker:
        """A worker for the game that a text names."""
        return HostedWorker(self, json.loads(code))

    borrow = open

    async def give_back(self, worker: HostedWorker) -> None:
        """There is nothing worth keeping."""
        await worker.close()


class HostedSuite(GamesSuite):
    """Games of a library, in a process of their own while they are played."""

    validated = False
    """Who breaks a game is told game by game, so each is alone in its worker; workers cost nothing here."""

    def __init__(self, games: Sequence[Game]) -> None:
        super().__init__(games)

    def host(self) -> Host:
        """A new host."""
        raise NotImplementedError

    async def run(self, items: Sequence[Item], setting: Setting) -> list[ItemResult]:
        """Play the items in the library's own process, which ends with them."""
        host = self.host()
        try:
            return await self._play(items, setting, HostedSandbox(host))
        finally:
            await asyncio.to_thread(host.close)


def lost(detail: str) -> ProgramFault:
    """The fault of a process that was lost."""
    return ProgramFault(FaultCode.LOST, detail)
