"""Work with a deadline: what is finished by then is kept, the rest is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 10.0
"""Seconds that cancelled work may take to end; then it is left alone, so that nothing waits for it."""

LATE: ContextVar[Callable[[str, float], None] | None] = ContextVar("late", default=None)
"""Called with the key of a deadline and its seconds when it is missed, before anything is cancelled: then it
can still be seen what everything waits for."""


async def all_in_time(
    works: Sequence[Coroutine[Any, Any, T]], seconds: float, key: str = "its deadline"
) -> list[T | None]:
    """Results of pieces of work that run side by side, in their order; None for one that was late.

    When one of them raises, the others are cancelled and the error is raised. Seconds below 0 count as 0:
    then nothing is finished that has to wait for anything. `key` is what sets the deadline.
    """
    tasks = [asyncio.create_task(work) for work in works]
    if not tasks:
        return []
    try:
        done, _ = await asyncio.wait(tasks, timeout=max(0.0, seconds), return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task in done and (error := task.exception()) is not None:
                raise error
        if len(done) < len(tasks) and (tell := LATE.get()) is not None:
            tell(key, seconds)
        return [task.result() if task in done else None for task in tasks]
    finally:
        late = [task for task in tasks if not task.done()]
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=PATIENCE)


async def in_time(work: Coroutine[Any, Any, None], seconds: float, key: str) -> None:
    """The same for one piece of work that keeps its results itself."""
    await all_in_time((work,), seconds, key)
