"""The self-test worker: tries what no program may do and reports what happened.

Runs inside a sandbox process (standard library only). A level is believed only when everything `expected` of
it was tried and refused; no return code of a confinement call counts. What the attempts aim at, the probe,
is made by the parent (`witness.py`), which looks afterwards whether anything reached it.
"""

from __future__ import annotations

import _thread
import ctypes
import fcntl
import json
import mmap
import os
import resource
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

NAMESPACE, LANDLOCK = "namespaces alone: ", "landlock alone: "
_NAMESPACE = frozenset(NAMESPACE + what for what in ("connect by TCP", "read a file"))
_LANDLOCK = frozenset(LANDLOCK + what for what in ("read a file", "list the root", "write a file"))
_EVERYWHERE = frozenset(
    {
        "read the parent's environment",
        "read a file",
        "list a folder",
        "write a file",
        "change a file",
        "remove a file",
        "make a folder",
        "connect by TCP",
        "send by UDP",
        "connect to a unix socket",
        "fork",
        "execute a program",
        "signal the parent",
        "see another descriptor",
        "raise a limit",
    }
)
_LINUX = frozenset(
    {
        "stat a file",
        "list the processes",
        "open a socket",
        "make a socket pair",
        "start a thread",
        "take more memory",
        "create a memory file",
        "raise the memory limit",
        "signal everybody",
        "read the host name",
        "make a queue by number",
    }
)
DEADLY = {"trace a process": "ptrace", "make a namespace": "unshare"}
"""Attempts that must end the worker; each gets a worker of its own."""


def expected(level: str) -> frozenset[str]:
    """Names of the attempts that `level` must refuse."""
    if level == "L1":
        return _EVERYWHERE
    names = _EVERYWHERE | _LINUX | set(DEADLY)
    names |= _LANDLOCK if level in ("L3", "L2") else frozenset()
    return names | (_NAMESPACE if level == "L3" else frozenset())


def _refused(attempt: Callable[[], Any]) -> bool:
    try:
        result = attempt()
    except (OSError, ValueError, RuntimeError):
        return True  # ValueError: setrlimit reports a refusal this way; RuntimeError: the thread module
    if isinstance(result, socket.socket):
        result.close()
    return False


def raw_call(number: int, *arguments: Any) -> None:
    """A system call by number; raises OSError if it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def _send(kind: int, address: Any) -> None:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family, kind) as sender:
        sender.settimeout(1.0)
        sender.connect(address)
        sender.send(b"x")


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _execute() -> None:
    """In a child where there can be one: a worker that becomes another program reports nothing."""
    try:
        pid = os.fork()
    except OSError:
        pid = 0
    if pid == 0:
        os.execv("/bin/sh", ["sh", "-c", "exit 0"])
    if os.waitpid(pid, 0)[1] != 0:
        raise OSError("refused")


def _more_descriptors() -> None:
    for fd in range(4, 256):
        try:
            fcntl.fcntl(fd, fcntl.F_GETFD)
        except OSError:
            continue
        return
    raise OSError("no descriptor beyond the channel")


def _environment_of(pid: int) -> None:
    if sys.platform != "darwin":
        os.close(os.open(f"/proc/{pid}/environ", os.O_RDONLY))
        return
    name, size = (ctypes.c_int * 3)(1, 49, pid), ctypes.c_size_t(0)  # CTL_KERN, KERN_PROCARGS2
    if ctypes.CDLL(None).sysctl(name, 3, None, ctypes.byref(size), None, 0) < 0:
        raise OSError("refused")


class Checks:
    """Collects `{attempt: refused}` at three moments: unconfined, after Landlock, when all is in place.

    The probe: `pid` of the parent; `file` anyone may read and write in a `folder` anyone may; a TCP and a UDP
    port and a `unix` socket it listens on; `memory` bytes that are more than the limit; a system call number.
    """

    def __init__(self, probe: dict[str, Any]) -> None:
        self.probe = probe
        self.refused: dict[str, bool] = {}

    def _try(self, name: str, attempt: Callable[[], Any]) -> None:
        self.refused[name] = _refused(attempt)

    def _tcp(self) -> None:
        _send(socket.SOCK_STREAM, ("127.0.0.1", self.probe["tcp"]))

    def _open(self, name: str, flags: int) -> None:
        os.close(os.open(os.path.join(self.probe["folder"], name), flags, 0o600))

    def _read(self) -> None:
        os.close(os.open(self.probe["file"], os.O_RDONLY))

    def before_confinement(self) -> None:
        """What the namespaces of L3 alone must refuse."""
        self._try(NAMESPACE + "connect by TCP", self._tcp)
        self._try(NAMESPACE + "read a file", self._read)

    def after_landlock(self) -> None:
        """What Landlock alone must refuse."""
        self._try(LANDLOCK + "read a file", self._read)
        self._try(LANDLOCK + "list the root", lambda: os.listdir("/"))
        self._try(LANDLOCK + "write a file", lambda: self._open("by_landlock", os.O_CREAT | os.O_WRONLY))

    def in_place(self, level: str) -> None:
        """What a running program would meet."""
        for name, attempt in self._attempts().items():
            if name in expected(level):
                self._try(name, attempt)

    def _attempts(self) -> dict[str, Callable[[], Any]]:
        probe, hard = self.probe, resource.RLIM_INFINITY
        return {
            "read the parent's environment": lambda: _environment_of(probe["pid"]),
            "read a file": self._read,
            "stat a file": lambda: os.stat(probe["file"]),
            "list a folder": lambda: os.listdir(probe["folder"]),
            "list the processes": lambda: os.listdir("/proc"),
            "write a file": lambda: self._open("by_program", os.O_CREAT | os.O_WRONLY),
            "change a file": lambda: self._open(probe["file"], os.O_WRONLY | os.O_TRUNC),
            "remove a file": lambda: os.unlink(probe["file"]),
            "make a folder": lambda: os.mkdir(os.path.join(probe["folder"], "folder")),
            "open a socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
            "make a socket pair": lambda: socket.socketpair(),
            "connect by TCP": self._tcp,
            "send by UDP": lambda: _send(socket.SOCK_DGRAM, ("127.0.0.1", probe["udp"])),
            "connect to a unix socket": lambda: _send(socket.SOCK_STREAM, probe["unix"]),
            "fork": _fork,
            "start a thread": lambda: _thread.start_new_thread(int, ()),
            "execute a program": _execute,
            "signal the parent": lambda: os.kill(probe["pid"], 0),
            "signal everybody": lambda: os.kill(-1, 0),
            "see another descriptor": _more_descriptors,
            "create a memory file": lambda: os.close(os.memfd_create("x")),
            "take more memory": lambda: mmap.mmap(-1, probe["memory"]).close(),
            "raise a limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)),
            "raise the memory limit": lambda: resource.setrlimit(resource.RLIMIT_AS, (hard, hard)),
            "read the host name": lambda: os.uname(),
            "make a queue by number": lambda: raw_call(probe["inotify"], 0),
        }

    def report(self) -> bytes:
        """The wire form: one frame."""
        body = json.dumps({"r": [self.refused]}).encode()
        return struct.pack(">I", len(body)) + body
