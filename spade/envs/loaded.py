"""A loaded program in a process of its own: what can be asked of it, one call at a time or in batches."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, cast

from spade.envs.death import Ended
from spade.envs.process import Process, raise_fault
from spade.envs.wire import Op, OpResult, PlayTrace, ProgramInfo, Request, StepResult
from spade.errors import FaultCode

if TYPE_CHECKING:
    from spade.types import Verdict

REUSE_STAGES = ("reset_twice", "interleave")
"""Validation stages that show that episodes in one process do not touch each other."""


class Worker:
    """A loaded program in a process of its own. Instances are named by integers of the caller's choice."""

    def __init__(self, process: Process, info: ProgramInfo, strict: bool) -> None:
        self.info = info
        self.code = ""
        """The program's text."""
        self.uses = 1
        """Times it was handed out."""
        self._process = process
        process.strict = strict

    @property
    def pid(self) -> int | None:
        """The process, as this process sees it; None until it is known, or where it cannot be."""
        return self._process.pid or None

    @property
    def cpu_seconds(self) -> float:
        """CPU time the process has used so far; 0 once it is gone, or where it cannot be known."""
        return self._process.cpu()

    @property
    def ended(self) -> Ended | None:
        """How the process ended, or None while it lives."""
        return self._process.ended

    @property
    def violations(self) -> list[str]:
        """Forbidden things the program tried and was refused."""
        return self._process.violations

    def batch(self, ops: Sequence[Request]) -> Coroutine[Any, Any, list[OpResult]]:
        """Many operations in one message; see `Op`. Never raises for the program's faults.

        A killed or dead worker fails all remaining operations. A program that tried something forbidden gets
        POLICY for the whole batch and is closed.
        """
        return self._process.batch(ops)

    async def _one(self, op: Request) -> object:
        return raise_fault((await self.batch([op]))[0])

    async def reset(self, i: int, seed: int) -> str:
        """Start an episode of instance `i`; first observation."""
        return cast(str, await self._one(Op.reset(i, seed)))

    async def step(self, i: int, action: str) -> StepResult:
        """One step of instance `i`."""
        (result,) = await self._process.batch((Op.step(i, action),))
        return result if type(result) is StepResult else cast(StepResult, raise_fault(result))

    async def solution(self, i: int) -> str | list[str]:
        """The program's own answer for instance `i`."""
        return cast("str | list[str]", await self._one(Op.solution(i)))

    async def hint(self, i: int) -> str:
        """The program's own hint for instance `i`."""
        return cast(str, await self._one(Op.hint(i)))

    async def tools(self, i: int) -> list[dict[str, Any]]:
        """The tools of instance `i` after its reset, in the OpenAI function format."""
        return cast("list[dict[str, Any]]", await self._one(Op.tools(i)))

    async def results(self, i: int) -> list[str]:
        """Results of the calls of the last step of instance `i`, one a call."""
        return cast("list[str]", await self._one(Op.results(i)))

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


def reusable(verdict: Verdict | None) -> bool:
    """Whether a worker of this program may be reset for its next episode instead of being replaced.

    It may if the program was accepted and the stages `REUSE_STAGES` ran and passed; a stage that is switched
    off has shown nothing.
    """
    if verdict is None or not verdict.accepted:
        return False
    passed = {result.stage for result in verdict.stages if result.ok}
    return passed.issuperset(REUSE_STAGES)
