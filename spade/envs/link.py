"""The parent's end of one zygote: starts it in a clean environment, asks for workers, hears of deaths."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from spade.envs import usage
from spade.envs.control import Inbox, Message, pack
from spade.envs.launch import PROGRAMS, Guest, Place, clean_environment, zygote_command
from spade.errors import SandboxError

__all__ = ["PROGRAMS", "Child", "Guest", "Place", "ZygoteLink"]

START_SECONDS = 30.0
MEMORY_LOOK_SECONDS = 0.02
"""Between two looks at the workers' memory, where the system does not enforce a limit itself (L1)."""


class Child(Protocol):
    """What a link tells a worker."""

    number: int

    def on_started(self, pid: int, pidfd: int | None) -> None:
        """The process exists; `pidfd` now belongs to the worker."""

    def on_exit(self, status: int | None) -> None:
        """The process is gone; wait status, or None if the zygote itself was lost."""

    def on_memory(self, mebibytes: int) -> None:
        """The process takes more than `mebibytes`; only called at levels whose limit the parent enforces."""


class ZygoteLink:
    """One zygote process and the workers it forked."""

    def __init__(
        self, place: Place, process: subprocess.Popen[bytes], control: socket.socket, memory_mb: int
    ) -> None:
        self.place = place
        self.level = place.level
        self.process = process
        self.control = control
        self.memory_mb = memory_mb
        self.children: dict[int, Child] = {}
        self.dead = False
        self.refused: list[str] = []
        """Why nothing stronger could be had."""
        self.on_death: Callable[[], None] = lambda: None
        self._inbox = Inbox()
        self._unsent = deque[tuple[bytes, int | None]]()
        self._lent: dict[int, int] = {}  # worker number to a copy of its channel, see `spawn`
        self._pids: dict[int, int] = {}  # of workers without pidfd
        self._base = 0  # bytes of the zygote itself
        self._watching = False

    @classmethod
    async def start(
        cls,
        place: Place | str,
        hash_seed: int,
        memory_mb: int,
        numpy: bool = False,
        guest: Guest = PROGRAMS,
    ) -> ZygoteLink:
        """Start a zygote. Raises SandboxError when this level cannot be had here."""
        if isinstance(place, str):
            place = Place(place, "own" if place == "L3" else "")
        ours, theirs = socket.socketpair()
        with theirs:
            command = zygote_command(place, theirs.fileno(), hash_seed, memory_mb, numpy, guest)
            try:
                process = subprocess.Popen(
                    command,
                    env=clean_environment(hash_seed),
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                text = f"Sandbox level {place} is not available here: {command[0]}: {error.strerror}."
                raise SandboxError(text) from error
        ours.setblocking(False)
        link = cls(place, process, ours, memory_mb)
        try:
            first = await link._first_message()
        except BaseException:  # the caller gave up: an interrupt most often
            link._abandon()
            raise
        if "ready" not in first:
            await link.close()
            raise SandboxError(f"Sandbox level {place} is not available here: {first['error']}.")
        if link.level == "L1":
            link._base = usage.resident_bytes(process.pid)
        asyncio.get_running_loop().add_reader(ours, link._readable)
        return link

    async def _first_message(self) -> Message:
        readable = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self.control, readable.set)
        try:
            async with asyncio.timeout(START_SECONDS):
                while True:
                    await readable.wait()
                    readable.clear()
                    messages = self._inbox.receive(self.control)
                    if messages is None:
                        break
                    if messages:
                        return messages[0][0]
        except (TimeoutError, OSError):
            pass
        finally:
            loop.remove_reader(self.control)
        return {"error": "the sandbox process ended or did not answer"}

    # --- requests --------------------------------------------------------------------------------------

    def spawn(
        self, child: Child, channel: socket.socket, mode: str, probe: dict[str, Any] | None = None
    ) -> None:
        """Ask for a worker that serves `channel`. Raises SandboxError if the zygote cannot be reached."""
        request = {"id": child.number, "mode": mode, "probe": probe or {}}
        self.children[child.number] = child
        # A copy stays open until the zygote answers: a descriptor waiting in a full queue must not close,
        # and macOS can lose one that is closed on our side while it is still on its way.
        self._lent[child.number] = os.dup(channel.fileno())
        try:
            self._send(request, self._lent[child.number])
        except OSError as error:
            del self.children[child.number]
            self._take_back(child.number)
            raise SandboxError(f"The sandbox process cannot be reached ({error.strerror}).") from error
        if self.level == "L1" and not self._watching:
            self._watch_memory()

    def kill(self, number: int) -> None:
        """Kill through the zygote; where there is no pidfd."""
        with contextlib.suppress(OSError):
            self._send({"kill": number})

    def _send(self, message: Message, descriptor: int | None = None) -> None:
        if self.dead:
            raise OSError(0, "it has ended")
        data = pack(message if descriptor is None else {**message, "fd": 1})
        self._unsent.append((data, descriptor))
        if len(self._unsent) == 1 and not self._flush():
            asyncio.get_running_loop().add_writer(self.control, self._writable)

    def _flush(self) -> bool:
        """Send what the socket takes; whether all is sent. Raises OSError when the zygote is gone."""
        while self._unsent:
            data, descriptor = self._unsent[0]
            descriptors = [] if descriptor is None else [descriptor]
            try:
                sent = socket.send_fds(self.control, [data], descriptors)
            except BlockingIOError:
                return False
            except OSError:
                self._unsent.clear()
                raise
            if sent < len(data):
                self._unsent[0] = (data[sent:], None)
            else:
                self._unsent.popleft()
        return True

    def _writable(self) -> None:
        done = True  # a zygote that is gone is noticed by the reader
        with contextlib.suppress(OSError):
            done = self._flush()
        if done:
            asyncio.get_running_loop().remove_writer(self.control)

    def _take_back(self, number: int) -> None:
        if (copy := self._lent.pop(number, None)) is not None:
            os.close(copy)

    # --- reports ---------------------------------------------------------------------------------------

    def _readable(self) -> None:
        while not self.dead:
            try:
                messages = self._inbox.receive(self.control)
            except BlockingIOError:
                return
            except OSError:
                messages = None
            if messages is None:
                self._lost()
                return
            for message, descriptor in messages:
                self._dispatch(message, descriptor)

    def _dispatch(self, message: Message, descriptor: int | None) -> None:
        number = message["exit"] if "exit" in message else message["id"]
        self._take_back(number)
        if "exit" in message:
            self._pids.pop(number, None)
            child = self.children.pop(number, None)
            if child is not None:
                child.on_exit(message["status"])
            return
        child = self.children.get(number)
        if child is None:
            if descriptor is not None:
                os.close(descriptor)
            return
        if descriptor is None:
            self._pids[number] = message["pid"]
        child.on_started(message["pid"], descriptor)

    def _watch_memory(self) -> None:
        """End workers above the memory limit; runs while there are any."""
        limit = self._base + (self.memory_mb << 20)
        for number, pid in list(self._pids.items()):
            if usage.resident_bytes(pid) > limit and number in self.children:
                self.children[number].on_memory(self.memory_mb)
        self._watching = bool(self.children) and not self.dead
        if self._watching:
            asyncio.get_running_loop().call_later(MEMORY_LOOK_SECONDS, self._watch_memory)

    # --- the end ---------------------------------------------------------------------------------------

    def _lost(self) -> None:
        self._stop()
        if self.level in ("L1", "L0"):  # elsewhere the kernel ends workers with their zygote
            for pid in self._pids.values():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        children, self.children = list(self.children.values()), {}
        for child in children:
            child.on_exit(None)
        self.on_death()

    def _stop(self) -> None:
        self.dead = True
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.control)
        loop.remove_writer(self.control)
        self._unsent.clear()
        for number in list(self._lent):
            self._take_back(number)

    def _abandon(self) -> None:
        """End a zygote that is still starting, without waiting for what it does."""
        self.control.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    async def close(self) -> None:
        """End the zygote and with it every worker."""
        if not self.dead:
            self._stop()
        # The zygote kills and reaps its children when its control socket closes; SIGKILL if it is stuck.
        self.control.close()
        try:
            await asyncio.to_thread(self.process.wait, 5.0)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            await asyncio.to_thread(self.process.wait)
