"""A thread of its own for the update, so that a step is generated while the one before it is trained on."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar, cast

import torch

T = TypeVar("T")


class Background:
    """Runs functions one after the other in one thread.

    The thread has the torch threads and the GPU of the thread that made it, since torch keeps both per
    thread; with the same number of threads results are bit-identical to those of a direct call. It is a
    daemon: a call that never returns does not keep the process from ending.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        gpu = torch.cuda.current_device() if torch.cuda.is_available() else None
        self._thread = threading.Thread(
            target=self._run, args=(torch.get_num_threads(), gpu), name="spade-learner", daemon=True
        )
        self._thread.start()

    async def call(self, function: Callable[[], T]) -> T:
        """The result of a function run in the thread; what it raises is raised here."""
        future: Future[Any] = Future()
        self._calls.put((function, future))
        return cast(T, await asyncio.wrap_future(future))

    def close(self) -> None:
        """End the thread after the calls that were made. Does not wait."""
        self._calls.put(None)

    def _run(self, threads: int, gpu: int | None) -> None:
        torch.set_num_threads(threads)
        if gpu is not None:
            torch.cuda.set_device(gpu)
        while (item := self._calls.get()) is not None:
            function, future = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as error:  # handed to whoever waits for the result
                future.set_exception(error)
