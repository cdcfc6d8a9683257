"""A file of JSON lines that one process at a time adds to, made to survive a kill at any moment.

Every line is one write, so a kill leaves it whole, torn at the end of the file, or absent; a torn end is
dropped when the file is opened next. Each line carries a `key` that says what made it. A file whose keys are
not this process' own is moved aside, never mixed in.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from spade.errors import InputError
from spade.files import atomic_write, cut_torn_line, json_lines, read_jsonl


class LineFile:
    """Open with `open`, which returns the rows that are there, and `close` when done."""

    def __init__(self, path: Path, mine: Callable[[str], bool]) -> None:
        self.path, self._mine = path, mine
        self._fd = -1

    def open(self) -> list[dict[str, Any]]:
        """Lock the file and read it. Raises InputError if another process writes to it, or it is damaged."""
        self._lock()
        try:
            cut_torn_line(self.path)
            rows = read_jsonl(self.path)
            other = next((str(r.get("key")) for r in rows if not self._mine(str(r.get("key")))), None)
            if other is None:
                return rows
            self.path.rename(self.path.with_name(f"{self.path.stem}.{other[:12]}.old.jsonl"))
            self.close()
            self._lock()
            return []
        except BaseException:
            self.close()
            raise

    def add(self, row: Mapping[str, Any]) -> None:
        """Write one row. Raises InputError when the file system refuses; the file is then as before."""
        data = json_lines([row]).encode("utf-8", "surrogatepass")
        size = os.fstat(self._fd).st_size
        try:
            written = os.write(self._fd, data)
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            os.ftruncate(self._fd, size)
            raise InputError(
                f"cannot write {self.path}: {error.strerror}; what is finished is kept"
            ) from error

    def replace(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rewrite the whole file, in one step."""
        atomic_write(self.path, json_lines(rows))
        self.close()
        self._lock()

    def close(self) -> None:
        """Give the file up. Idempotent."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1

    def _lock(self) -> None:
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}; use --out PATH") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise InputError(
                f"another spade eval writes {self.path}; wait for it or use --out PATH"
            ) from error
        except OSError:
            pass  # a file system without locks: then nobody watches over two processes
