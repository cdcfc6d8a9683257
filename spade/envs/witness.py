"""What the self-test aims at, and whether anything reached it; all of it in the parent."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import tempfile
from types import TracebackType
from typing import Any

from spade.errors import SandboxError

_TEXT = b"untouched"
_LONGEST_PATH = 60  # the name of a unix socket has about a hundred bytes
_INOTIFY_INIT1 = (294, 26)


class Witness:
    """A file and three sockets that are open to everybody. Use as a context manager."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Witness:
        try:
            self._prepare()
        except OSError as error:
            self._stack.close()
            raise SandboxError(
                f"The sandbox cannot be tested: no temporary file or local socket ({error.strerror})."
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _prepare(self) -> None:
        place = None if len(tempfile.gettempdir()) < _LONGEST_PATH else "/tmp"
        self.folder = tempfile.mkdtemp(prefix="spade_witness_", dir=place)
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.file = os.path.join(self.folder, "file")
        with open(self.file, "wb") as file:
            file.write(_TEXT)
        # File permissions must not be what refuses an attempt.
        os.chmod(self.file, 0o666)
        os.chmod(self.folder, 0o777)
        self._tcp = self._listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        self._udp = self._listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        self._unix = self._listener(socket.AF_UNIX, socket.SOCK_STREAM, os.path.join(self.folder, "socket"))
        os.chmod(os.path.join(self.folder, "socket"), 0o666)

    def _listener(self, family: int, kind: int, address: Any) -> socket.socket:
        made = self._stack.enter_context(socket.socket(family, kind))
        made.bind(address)
        made.setblocking(False)
        if kind == socket.SOCK_STREAM:
            made.listen()
        return made

    def probe(self, memory_mb: int) -> dict[str, Any]:
        """What the worker is told; see `selftest.Checks`."""
        return {
            "pid": os.getpid(),
            "folder": self.folder,
            "file": self.file,
            "tcp": self._tcp.getsockname()[1],
            "udp": self._udp.getsockname()[1],
            "unix": os.path.join(self.folder, "socket"),
            "memory": (memory_mb + 64) << 20,
            "inotify": _INOTIFY_INIT1[platform.machine() not in ("x86_64", "amd64")],
        }

    def saw(self) -> dict[str, bool]:
        """`{what must not have happened: it did not}`."""
        return {
            "witness: no file changed": self._file_is_whole(),
            "witness: no connection came": self._silent(self._tcp) and self._silent(self._unix),
            "witness: no datagram came": self._silent(self._udp),
        }

    def _file_is_whole(self) -> bool:
        with contextlib.suppress(OSError), open(self.file, "rb") as file:
            return file.read() == _TEXT and sorted(os.listdir(self.folder)) == ["file", "socket"]
        return False

    def _silent(self, listener: socket.socket) -> bool:
        try:
            if listener.type == socket.SOCK_DGRAM:
                listener.recv(1)
            else:
                listener.accept()[0].close()
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False
