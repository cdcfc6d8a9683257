"""What a benchmark solution finds around it: standard streams, `exit`, threads that are none.

Standard library only; runs in the confined process of a solution (`solution_worker.py`).
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import resource
import sys
import threading
import types
from typing import Any

HIDDEN_MODULES = ("ctypes", "_ctypes", "socket", "_socket", "select", "fcntl", "sysconfig")
"""Loaded for the harness; an import of them fails as for any module that is not in the list."""

os_read, os_write = os.read, os.write
_os_fstat, _open = os.fstat, io.open


class OutputLimit(BaseException):
    """The solution printed more than it may."""


class Input(io.BytesIO):
    """Standard input of a solution; everything that reads descriptor 0 reads from here."""

    def fileno(self) -> int:
        return 0


class Output(io.BytesIO):
    """Standard output of a solution, at most `cap` bytes; stays readable when a wrapper closes it."""

    def __init__(self, cap: int) -> None:
        super().__init__()
        self.cap = cap
        self.over = False

    def fileno(self) -> int:
        return 1

    def write(self, data: Any) -> int:
        count = len(memoryview(data).cast("B"))
        if self.over or self.tell() + count > self.cap:
            self.over = True
            raise OutputLimit
        return super().write(data)

    def close(self) -> None:
        pass


class Sink(io.RawIOBase):
    """Standard error: accepted and forgotten."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data)


def text_stream(raw: Any) -> io.TextIOWrapper:
    """The text stream Python puts over a standard descriptor."""
    return io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape", write_through=True)


def install_streams(data: bytes, cap: int) -> Output:
    """Replace the standard streams, and what reaches them by number or as `/dev/stdin`."""
    source, sink = Input(data), Output(cap)
    output = io.TextIOWrapper(sink, encoding="utf-8", errors="surrogateescape")
    sys.stdin = sys.__stdin__ = text_stream(source)  # type: ignore[misc]
    sys.stdin.mode, output.mode = "r", "w"  # type: ignore[misc]  # as `open` would have set it
    sys.stdout = sys.__stdout__ = output  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = text_stream(Sink())  # type: ignore[misc]

    def read(descriptor: int, count: int) -> bytes:
        return source.read(count) if descriptor == 0 else os_read(descriptor, count)

    def write(descriptor: int, data: Any) -> int:
        if descriptor == 1:
            output.flush()
            return sink.write(data)
        return len(data) if descriptor == 2 else os_write(descriptor, data)

    def fstat(descriptor: int) -> Any:
        if descriptor == 0:
            return types.SimpleNamespace(st_size=len(data), st_mode=0o100444)
        return _os_fstat(descriptor)

    def open_(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if file in (0, "/dev/stdin"):
            return source if "b" in mode else text_stream(source)
        if file in (1, "/dev/stdout"):
            return sink if "b" in mode else text_stream(sink)
        return _open(file, mode, *args, **kwargs)

    for module, name, value in (
        (os, "read", read),
        (os, "write", write),
        (os, "fstat", fstat),
        (io, "open", open_),
        (builtins, "open", open_),
    ):
        setattr(module, name, value)
    return sink


def printed(sink: Output) -> str:
    """Everything printed so far, flushed as at the end of an interpreter."""
    for stream in (sys.stdout, sys.__stdout__):
        with contextlib.suppress(Exception):  # closed, detached or replaced by something else
            stream.flush()  # type: ignore[union-attr]
    return sink.getvalue().decode("utf-8", "replace")


# --- surroundings --------------------------------------------------------------------------------------


def _stop(code: Any = None) -> None:
    raise SystemExit(code)


def prepare_process() -> None:
    """What solutions find different from a plain interpreter: exit, threads, limits, hidden modules."""
    builtins.exit = builtins.quit = _stop  # type: ignore[assignment]  # put there by `site` in a plain interpreter
    thread: Any = threading.Thread
    thread.start, thread.join, thread.is_alive = _start_thread, _join_thread, lambda self: False
    resource.setrlimit = lambda *args: None  # type: ignore[assignment]  # the stack is as large as it can be
    sys.argv = ["solution.py"]
    for name in HIDDEN_MODULES:
        sys.modules.pop(name, None)


def _start_thread(self: Any) -> None:
    """Stand-in for `Thread.start`: runs the target at once, to its end; a worker has one thread."""
    if self._started.is_set():
        raise RuntimeError("threads can only be started once")
    self._started.set()
    try:
        self.run()
    except SystemExit:
        pass
    except Exception:
        pass  # as with real threads, an exception ends the thread alone


def _join_thread(self: Any, timeout: float | None = None) -> None:
    if not self._started.is_set():
        raise RuntimeError("cannot join thread before it is started")
