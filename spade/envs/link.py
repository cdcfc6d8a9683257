"""The parent's end of one zygote: starts it in a clean environment, asks for workers, hears of deaths."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from spade.envs.contract import ALLOWED_MODULES
from spade.errors import SandboxError

START_SECONDS = 30.0
NOBODY = 65534
"""User and group id of workers where the parent is root or has namespaces of its own."""

_FOLDER = Path(__file__).parent


class Child(Protocol):
    """What a link tells a worker."""

    number: int

    def on_started(self, pid: int, pidfd: int | None) -> None:
        """The process exists; `pidfd` now belongs to the worker."""

    def on_exit(self, status: int | None) -> None:
        """The process is gone; wait status, or None if the zygote itself was lost."""


class ZygoteLink:
    """One zygote process and the workers it forked."""

    def __init__(self, level: str, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.level = level
        self.process = process
        self.control = control
        self.children: dict[int, Child] = {}
        self.dead = False
        self.on_death: Callable[[], None] = lambda: None

    @classmethod
    async def start(cls, level: str, hash_seed: int, memory_mb: int) -> ZygoteLink:
        """Start a zygote at `level`. Raises SandboxError when the level cannot be had here."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        settings = {
            "level": level,
            "memory_mb": memory_mb,
            "uid": NOBODY,
            "modules": ALLOWED_MODULES,
            "tools": str(_FOLDER / "tools.py"),
        }
        command = [sys.executable, "-s", "-S", "-P", "-B", str(_FOLDER / "zygote.py")]
        command += [str(theirs.fileno()), json.dumps(settings)]
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
        theirs.close()
        ours.setblocking(False)
        link = cls(level, process, ours)
        try:
            async with asyncio.timeout(START_SECONDS):
                data = await asyncio.get_running_loop().sock_recv(ours, 1 << 16)
        except TimeoutError:
            data = b""
        first = json.loads(data) if data else {"error": "the sandbox process ended or did not answer"}
        if "ready" not in first:
            await link.close()
            raise SandboxError(f"Sandbox level {level} is not available here: {first['error']}.")
        asyncio.get_running_loop().add_reader(ours, link._readable)
        return link

    def spawn(
        self, child: Child, channel: socket.socket, mode: str, probe: dict[str, Any] | None = None
    ) -> None:
        """Ask for a worker that serves `channel`. Raises SandboxError if the zygote cannot be reached."""
        request = {"id": child.number, "mode": mode, "probe": probe or {}}
        self.children[child.number] = child
        try:
            socket.send_fds(self.control, [json.dumps(request).encode()], [channel.fileno()])
        except OSError as error:
            del self.children[child.number]
            raise SandboxError(f"The sandbox process cannot be reached ({error.strerror}).") from error

    def kill(self, number: int) -> None:
        """Kill through the zygote; only where the kernel has no pidfd."""
        with contextlib.suppress(OSError):
            self.control.send(json.dumps({"kill": number}).encode())

    def _readable(self) -> None:
        while not self.dead:
            try:
                data, descriptors, _, _ = socket.recv_fds(self.control, 1 << 16, 4)
            except BlockingIOError:
                return
            except OSError:
                data, descriptors = b"", []
            if not data:
                self._lost()
                return
            self._dispatch(json.loads(data), descriptors)

    def _dispatch(self, message: dict[str, Any], descriptors: list[int]) -> None:
        if "exit" in message:
            child = self.children.pop(message["exit"], None)
            if child is not None:
                child.on_exit(message["status"])
            return
        child = self.children.get(message["id"])
        if child is None:
            for descriptor in descriptors:
                os.close(descriptor)
            return
        child.on_started(message["pid"], descriptors[0] if descriptors else None)

    def _lost(self) -> None:
        self.dead = True
        asyncio.get_running_loop().remove_reader(self.control)
        children, self.children = list(self.children.values()), {}
        for child in children:
            child.on_exit(None)
        self.on_death()

    async def close(self) -> None:
        """End the zygote and with it every worker."""
        if not self.dead:
            self.dead = True
            asyncio.get_running_loop().remove_reader(self.control)
        # The zygote kills and reaps its children when its control socket closes; SIGKILL if it is stuck.
        self.control.close()
        try:
            await asyncio.to_thread(self.process.wait, 5.0)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            await asyncio.to_thread(self.process.wait)


def clean_environment(hash_seed: int) -> dict[str, str]:
    """The six variables of a zygote, and the library path where the interpreter itself needs one."""
    fixed = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": str(hash_seed),
    }
    if library_path := os.environ.get("LD_LIBRARY_PATH"):
        fixed["LD_LIBRARY_PATH"] = library_path
    return fixed
