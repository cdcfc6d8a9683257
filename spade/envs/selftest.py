"""The self-test worker: tries what no program may do and reports what happened.

Runs inside a sandbox process (standard library only). A level is believed only when every attempt of its
self-test was refused; no return code of a confinement call counts.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import socket
import struct
from collections.abc import Callable
from typing import Any


def _refused(attempt: Callable[[], Any]) -> bool:
    try:
        result = attempt()
    except OSError:
        return True
    except ValueError:
        return True  # setrlimit reports a refusal this way
    if isinstance(result, socket.socket):
        result.close()
    return False


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=1.0)


def _raw(number: int, *arguments: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _more_descriptors() -> None:
    for fd in range(4, 256):
        try:
            fcntl.fcntl(fd, fcntl.F_GETFD)
        except OSError:
            continue
        return
    raise OSError("no descriptor beyond the channel")


class Checks:
    """Collects `{attempt: refused}` at three moments: unconfined, after Landlock, after the filter."""

    def __init__(self, probe: dict[str, Any]) -> None:
        self.probe = (
            probe  # {"pid": a process of the parent, "port": a TCP port it listens on, "file": a path}
        )
        self.refused: dict[str, bool] = {}

    def _try(self, name: str, attempt: Callable[[], Any]) -> None:
        self.refused[name] = _refused(attempt)

    def before_confinement(self) -> None:
        """What the namespaces of L3 alone must refuse."""
        self._try("namespace: connect to the parent", lambda: _connect(self.probe["port"]))
        self._try("namespace: signal the parent", lambda: os.kill(self.probe["pid"], 0))
        self._try("namespace: read a file", lambda: os.close(os.open(self.probe["file"], os.O_RDONLY)))

    def after_landlock(self) -> None:
        """What Landlock alone must refuse."""
        self._try("landlock: read a file", lambda: os.close(os.open(self.probe["file"], os.O_RDONLY)))
        self._try("landlock: list the root", lambda: os.listdir("/"))
        self._try(
            "landlock: write", lambda: os.close(os.open("/tmp/spade_selftest", os.O_CREAT | os.O_WRONLY))
        )

    def after_filter(self) -> None:
        """What a running program would meet."""
        attempts: dict[str, Callable[[], Any]] = {
            "read the parent's environment": lambda: os.open(
                f"/proc/{self.probe['pid']}/environ", os.O_RDONLY
            ),
            "read a file": lambda: os.open(self.probe["file"], os.O_RDONLY),
            "stat a file": lambda: os.stat(self.probe["file"]),
            "write a file": lambda: os.open("/tmp/spade_selftest", os.O_CREAT | os.O_WRONLY),
            "open a socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
            "open a unix socket": lambda: socket.socketpair(),
            "fork": _fork,
            "execute a program": lambda: os.execv("/bin/true", ["true"]),
            "signal the parent": lambda: os.kill(self.probe["pid"], 0),
            "signal everybody": lambda: os.kill(-1, 0),
            "see another descriptor": _more_descriptors,
            "create a memory file": lambda: os.memfd_create("x"),
            "raise a limit": lambda: resource.setrlimit(resource.RLIMIT_CORE, (1, 1)),
            "read the host name": lambda: os.uname(),
            "make a queue by number": lambda: _raw(self.probe["inotify"], 0),
        }
        for name, attempt in attempts.items():
            self._try(name, attempt)

    def report(self) -> bytes:
        """The wire form: one frame."""
        body = json.dumps({"r": [self.refused]}).encode()
        return struct.pack(">I", len(body)) + body
