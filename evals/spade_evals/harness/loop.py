"""An event loop in a thread of its own, for callers that need the main thread for something else."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

Wait = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine to its end and gives its result; an interruption cancels it."""


@contextlib.contextmanager
def loop_thread() -> Iterator[Wait]:
    """A function that runs coroutines in the other thread's loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="spade-harness", daemon=True)
    thread.start()

    def wait(work: Coroutine[Any, Any, Any]) -> Any:
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    try:
        yield wait
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
