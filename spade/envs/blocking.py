"""The sandbox for code without an event loop: the same `Sandbox`, driven by a thread of its own.

    with BlockingSandbox(cfg) as box:
        worker = box.open(code)                       # ProgramFault if it does not load
        observation = box.run(worker.reset(0, seed=1))

Calls may come from any thread; each waits for its result. `lease` and `give_back` let many users with equal
settings share one sandbox, which ends with the last of them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from spade.envs.sandbox import Sandbox, Worker
from spade.errors import SandboxError

if TYPE_CHECKING:
    from spade.config import SandboxConfig

T = TypeVar("T")


class BlockingSandbox:
    """A started sandbox. Raises SandboxError where `Sandbox.start` does."""

    def __init__(self, cfg: SandboxConfig) -> None:
        self._owner = os.getpid()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        # A daemon, since a thread that is waited for at exit would keep an unclosed sandbox alive forever.
        self._thread = threading.Thread(target=self._loop.run_forever, name="spade-sandbox", daemon=True)
        self._thread.start()
        try:
            self.sandbox: Sandbox = self.run(Sandbox.start(cfg))
        except BaseException:
            self._closed = True
            self._end_thread()
            raise

    def __enter__(self) -> BlockingSandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> BlockingSandbox:
        return self  # a copy of settings that name a sandbox means the same processes

    @property
    def level(self) -> str:
        """Isolation level."""
        return self.sandbox.level

    @property
    def usable(self) -> bool:
        """Whether it is open, and in the process that started it (a fork inherits no thread)."""
        return not self._closed and self._owner == os.getpid()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Result of a coroutine run in the sandbox's thread. An interrupt of the caller cancels it."""
        if not self.usable:
            work.close()
            raise SandboxError("The sandbox is closed, or belongs to another process; start a new one.")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def open(self, code: str) -> Worker:
        """A worker with the program loaded. Raises ProgramFault if it does not load."""
        return self.run(self.sandbox.open(code))

    def close(self) -> None:
        """End every worker, the zygotes and the thread. May be called again, and from any thread."""
        if not self.usable:
            return
        if threading.current_thread() is self._thread:  # garbage collection picks its thread at random
            threading.Thread(target=self.close, daemon=True).start()
            return
        try:
            self.run(self.sandbox.close())
        finally:
            self._closed = True
            self._end_thread()

    def _end_thread(self) -> None:
        asyncio.run_coroutine_threadsafe(self._loop.shutdown_default_executor(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


# --- sharing -------------------------------------------------------------------------------------------

_lock = threading.RLock()
"""Reentrant: garbage collection may give a sandbox back while the same thread leases one."""
_shared: dict[str, tuple[BlockingSandbox, int]] = {}
"""Settings -> the sandbox started with them and its number of users."""


def lease(cfg: SandboxConfig) -> BlockingSandbox:
    """The shared sandbox with these settings; every lease is to be ended by `give_back`."""
    key = cfg.model_dump_json()
    with _lock:
        box, users = _shared.get(key, (None, 0))
        if box is None or not box.usable:
            box, users = BlockingSandbox(cfg), 0
        _shared[key] = (box, users + 1)
        return box


def give_back(box: BlockingSandbox) -> None:
    """End one lease; the last one closes the sandbox."""
    with _lock:
        for key, (held, users) in list(_shared.items()):
            if held is box:
                if users > 1:
                    _shared[key] = (held, users - 1)
                    return
                del _shared[key]
        box.close()


def _forget() -> None:
    """In a forked child: the parent's sandboxes and a lock that some lost thread may hold are not ours."""
    global _lock
    _lock = threading.RLock()
    _shared.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
