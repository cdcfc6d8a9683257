"""When the hints of a design step are written: beside more tries of failed designs, or after all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from spade.design.hints import HintDraft
from spade.types import EnvProgram


class Writing:
    """The hints of a design step: written while failed designs are tried again or, `in_order`, after that."""

    def __init__(
        self,
        write: Callable[[int, Sequence[EnvProgram]], Coroutine[Any, Any, list[HintDraft]]],
        step: int,
        in_order: bool,
    ) -> None:
        self._write, self._step, self._in_order = write, step, in_order
        self._programs: list[EnvProgram] = []
        self._tasks: list[asyncio.Task[list[HintDraft]]] = []

    def begin(self, programs: list[EnvProgram]) -> None:
        """These programs were accepted."""
        if self._in_order:
            self._programs += programs
        else:
            self._tasks.append(asyncio.create_task(self._write(self._step, programs)))

    async def drafts(self) -> list[HintDraft]:
        """The hints of all accepted programs, in their order."""
        if self._in_order:
            return await self._write(self._step, self._programs)
        return [draft for many in await asyncio.gather(*self._tasks) for draft in many]

    def cancel(self) -> None:
        """Give up what is not written yet."""
        for task in self._tasks:
            task.cancel()
