"""Environment programs on all nodes of a Ray cluster (`sandbox.nodes: ray`, extra `ray`).

    RaySandbox ── opens workers on the node that has the fewest ──► Host (an actor on each node) ──► Sandbox
    RayWorker  ── batches of operations ──────────────────────────► its worker there

Every node confines programs by itself, with the same limits; `max_workers` holds for all of them together.
When a node is lost, its workers move: the program is loaded on another node, every operation since the last
reset of each instance is repeated, and the answers must be what they were before. Then the interrupted batch,
none of which has counted, is asked again. So no episode is lost with a node and none is scored twice. A
program that does not repeat is a lost worker, which is nobody's verdict.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, cast

from spade.cluster import actor_on, connect, ray_errors
from spade.envs.death import Ended
from spade.envs.levels import ORDER
from spade.envs.loaded import Worker
from spade.envs.sandbox import Sandbox
from spade.envs.wire import Op, OpResult, ProgramInfo, Request, StepResult
from spade.errors import FaultCode, ProgramFault, SandboxError

if TYPE_CHECKING:
    from spade.config import SandboxConfig

STARTS = ("r", "p")
"""Operations that begin an episode: what an instance did before no longer matters."""
DROP = "d"


class Host:
    """One node's sandbox, as an actor. Faults travel as tuples."""

    def __init__(self, cfg: SandboxConfig) -> None:
        self.cfg = cfg.model_copy(update={"nodes": "local"})
        self.sandbox: Sandbox | None = None
        self.workers: dict[int, Worker] = {}

    async def start(self) -> str:
        """Start the sandbox; its level. Raises as `Sandbox.start` does."""
        self.sandbox = await Sandbox.start(self.cfg)
        return self.sandbox.level

    async def open(self, number: int, code: str, replay: bool, strict: bool) -> Any:
        """Load a program as worker `number`; its information, or the fault as a tuple."""
        assert self.sandbox is not None, "start() comes first"
        try:
            worker = await self.sandbox.open(code, replay=replay, strict=strict)
        except ProgramFault as fault:
            return pack(fault)
        self.workers[number] = worker
        return worker.info

    async def batch(self, number: int, ops: Sequence[Request]) -> tuple[list[Any], list[str], Ended | None]:
        """Answers of a worker, its forbidden attempts, and how it ended if it did."""
        worker = self.workers[number]
        answers = [pack(a) if isinstance(a, ProgramFault) else a for a in await worker.batch(ops)]
        return answers, worker.violations, worker.ended

    async def close(self, number: int) -> None:
        """End a worker."""
        if (worker := self.workers.pop(number, None)) is not None:
            await worker.close()

    async def stop(self) -> None:
        """End the sandbox."""
        if self.sandbox is not None:
            await self.sandbox.close()


class _Node:
    """A node as the driver knows it."""

    def __init__(self, name: str, actor: Any) -> None:
        self.name, self.actor = name, actor
        self.open = 0
        """Workers that live there."""
        self.lost = False

    def lose(self) -> None:
        """Go on without the node, and say so."""
        if not self.lost:
            where = f"the node {self.name[:8]} of the Ray cluster"
            print(f"sandbox: {where} is lost; its programs move to the others.", file=sys.stderr, flush=True)
        self.lost = True


class RaySandbox(Sandbox):
    """A sandbox whose programs run on the nodes of a cluster; bare workers (answers in code) run here."""

    nodes: list[_Node]

    @classmethod
    async def start(cls, cfg: SandboxConfig) -> RaySandbox:
        """Connect to the cluster and start a sandbox on each of its nodes.

        Raises InputError without Ray or a cluster, SandboxError when no node can confine programs at
        `cfg.min_level`.
        """
        names = await asyncio.to_thread(connect, "sandbox.nodes=ray")
        box = cast(RaySandbox, await super().start(cfg))
        box.nodes = [_Node(name, actor_on(Host, name, cfg)) for name in names]
        levels: list[str] = []
        why = ""
        for node in box.nodes:
            try:
                levels.append(await node.actor.start.remote())
            except lost_errors() as error:
                node.lost, why = True, str(error).strip().splitlines()[-1]
        if not levels:
            await box.close()
            raise SandboxError(f"No node of the Ray cluster can run programs; the last one says: {why}")
        box.level = min(levels, key=ORDER.index)
        return box

    async def open(self, code: str, *, replay: bool = False, strict: bool = True) -> Worker:
        """See `Sandbox.open`. Raises SandboxError when every node is lost."""
        while self._idle and sum(n.open for n in self.nodes if not n.lost) >= self.cfg.max_workers:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            await oldest.close()
        worker = RayWorker(self, code, replay, strict)
        await worker.settle()
        return worker

    def take(self) -> _Node:
        """The node with the fewest workers, with one more."""
        there = [node for node in self.nodes if not node.lost]
        if not there or self._closed:
            raise SandboxError("every node of the Ray cluster is lost; start it and the command again")
        node = min(there, key=lambda n: n.open)
        node.open += 1
        return node

    def next_number(self) -> int:
        """A number no other worker of this sandbox has."""
        return next(self._numbers)

    @property
    def processes(self) -> int:
        """See `Sandbox.processes`; those of lost nodes are gone with them."""
        return super().processes + sum(node.open for node in self.nodes if not node.lost)

    async def close(self) -> None:
        """See `Sandbox.close`."""
        there = [] if self._closed else [node for node in self.nodes if not node.lost]
        await super().close()
        await asyncio.gather(*(_stop(node) for node in there))


async def _stop(node: _Node) -> None:
    import ray

    try:
        await node.actor.stop.remote()
        ray.kill(node.actor)
    except lost_errors():
        node.lost = True


class RayWorker(Worker):
    """A program on some node, which moves to another when the node is lost."""

    def __init__(self, sandbox: RaySandbox, code: str, replay: bool, strict: bool) -> None:
        self.code, self.uses = code, 1
        self.info = ProgramInfo("", "", 0, False, False)
        self._sandbox, self._replay, self._strict = sandbox, replay, strict
        self._node: _Node | None = None
        self._number = 0
        self._log: list[tuple[Request, bytes]] = []
        """Operations the present state comes from, each with a digest of its answer."""
        self._violations: list[str] = []
        self._ended: Ended | None = None
        self._lock = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Not known of a process on another node."""
        return None

    @property
    def cpu_seconds(self) -> float:
        """Not known of a process on another node."""
        return 0.0

    @property
    def ended(self) -> Ended | None:
        """See `Worker.ended`."""
        return self._ended

    @property
    def violations(self) -> list[str]:
        """See `Worker.violations`."""
        return self._violations

    def batch(self, ops: Sequence[Request]) -> Coroutine[Any, Any, list[OpResult]]:
        """See `Worker.batch`."""
        return self._batch(list(ops))

    async def step(self, i: int, action: str) -> StepResult:
        """See `Worker.step`."""
        return cast(StepResult, await self._one(Op.step(i, action)))

    async def close(self) -> None:
        """See `Worker.close`."""
        node, self._node = self._node, None
        self._ended = self._ended or Ended.CLOSED
        if node is None or node.lost:
            return
        node.open -= 1
        try:
            await node.actor.close.remote(self._number)
        except lost_errors():
            node.lost = True

    async def settle(self) -> None:
        """Load the program on a node, and bring it to the state it had on the node before.

        Raises ProgramFault if it does not load (or, as LOST, does not repeat), SandboxError without a node.
        """
        while True:
            node = self._node = self._sandbox.take()
            self._number = self._sandbox.next_number()
            try:
                loaded = await node.actor.open.remote(self._number, self.code, self._replay, self._strict)
                if not isinstance(loaded, ProgramInfo):
                    node.open -= 1
                    self._node, self._ended = None, Ended.CLOSED
                    raise unpack(loaded)
                self.info = loaded
                if not self._log:
                    return
                answers, _, _ = await node.actor.batch.remote(self._number, [op for op, _ in self._log])
            except lost_errors():
                node.lose()
                continue
            if [digest_of(answer) for answer in answers] == [digest for _, digest in self._log]:
                return
            await self.close()
            raise ProgramFault(FaultCode.LOST, "its node was lost, and it does not repeat on another one")

    async def _batch(self, ops: list[Request]) -> list[OpResult]:
        async with self._lock:
            while ops and self._node is not None:
                try:
                    answers, violations, ended = await self._node.actor.batch.remote(self._number, ops)
                except lost_errors():
                    self._node.lose()
                    try:
                        await self.settle()
                    except ProgramFault as fault:
                        return [fault] * len(ops)
                    continue
                self._violations, self._ended = violations, ended
                self._note(ops, answers)
                return [unpack(a) if is_fault(a) else a for a in answers]
            return [ProgramFault(FaultCode.LOST, "the worker was closed")] * len(ops)

    def _note(self, ops: Sequence[Request], answers: Sequence[Any]) -> None:
        """Keep what is needed to come to this state again."""
        for op, answer in zip(ops, answers, strict=True):
            if op[0] in STARTS or op[0] == DROP:
                self._log = [(old, digest) for old, digest in self._log if old[1] != op[1]]
            if op[0] != DROP:
                self._log.append((op, digest_of(answer)))


def lost_errors() -> tuple[type[BaseException], ...]:
    """What says that a node is lost: Ray, or its sandbox."""
    return (*ray_errors(), SandboxError)


def pack(fault: ProgramFault) -> tuple[str, str, str]:
    """A fault as a value that can be sent."""
    return ("fault", fault.code.value, fault.detail)


def is_fault(answer: Any) -> bool:
    """Whether a value is a packed fault."""
    return type(answer) is tuple and len(answer) == 3 and answer[0] == "fault"


def unpack(value: Any) -> ProgramFault:
    """Inverse of `pack`."""
    return ProgramFault(FaultCode(value[1]), value[2])


def digest_of(answer: Any) -> bytes:
    """A short digest of an answer; of a fault only its code, since details may name addresses."""
    text = repr(answer[:2]) if is_fault(answer) else repr(answer)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).digest()
