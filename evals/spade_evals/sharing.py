"""Blocks of work among workers of which any may be lost; every block's result is taken once.

    blocks ──► queue ──► worker ──► result ──► taken
                 ▲          │ lost
                 └── block ─┘

Nothing here knows of Ray, models or files.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

from spade_evals.asking import together

MOST = 128
"""Items of a block for an engine that batches by itself."""
BLOCKS = 4
"""Blocks of such an engine, at least: the last ones should end at about the same time."""

Block = TypeVar("Block")
Result = TypeVar("Result")


class WorkerLost(Exception):
    """Raised by `run` of `share`: this worker is gone, and what it was doing has not counted."""


def block_size(items: int, workers: int, rows: int, lockstep: bool) -> int:
    """How many of `items` one worker takes at a time.

    An engine in lockstep takes what fills one of its batches (`rows`), or an equal share where that is less;
    another one at most `MOST`.
    """
    if lockstep:
        return max(1, min(rows, math.ceil(items / workers)))
    return max(1, min(MOST, math.ceil(items / (BLOCKS * workers))))


async def share(
    blocks: Iterable[Block],
    workers: Sequence[int],
    run: Callable[[int, Block], Awaitable[Result]],
    took: Callable[[Block, Result], None],
    at_once: int = 1,
) -> None:
    """Have every block done by one of `workers`, each beginning the next when it is free.

    `run(worker, block)` raises WorkerLost when the worker is gone: the block goes to the front of the queue,
    and the worker gets no more. `took` is called with every block and its result, once, as they come. A
    worker has up to `at_once` blocks. Raises WorkerLost when no worker is left, and what else `run` and
    `took` raise when all that is under way was cancelled.
    """
    queue = _Queue(blocks)
    left = set(workers)

    async def serve(worker: int) -> None:
        while (block := await queue.take()) is not None:
            try:
                if worker not in left:
                    raise WorkerLost
                result = await run(worker, block)
            except WorkerLost:
                left.discard(worker)
                await queue.back(block)
                if not left:
                    raise
                return
            took(block, result)
            await queue.done()

    await together([serve(worker) for worker in workers for _ in range(at_once)])


class _Queue(Generic[Block]):
    """Blocks that wait. Whoever finds none waits on, as long as one under way may come back."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._waiting = deque(blocks)
        self._under_way = 0
        self._changed = asyncio.Condition()

    async def take(self) -> Block | None:
        """The next block; None when all are done."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting or not self._under_way)
            if not self._waiting:
                return None
            self._under_way += 1
            return self._waiting.popleft()

    async def back(self, block: Block) -> None:
        """A block that was not done."""
        async with self._changed:
            self._waiting.appendleft(block)
            self._under_way -= 1
            self._changed.notify_all()

    async def done(self) -> None:
        """A block that was."""
        async with self._changed:
            self._under_way -= 1
            self._changed.notify_all()
