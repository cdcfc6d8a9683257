"""Files that are never half-written, and names that never lead out of their folder.

* `atomic_write`: temporary file, fsync, rename. A reader sees the old content or the new, also after a crash.
* `make_folder`: a folder and those above it.
* `append_lines` / `read_jsonl`: append-only JSON lines; what a crash leaves of a last line is cut off.
* `path_inside` / `open_inside`: a name out of a manifest is hostile; no `..`, no absolute path, no link.

Disk full and other refusals of the file system become one `InputError` sentence; the old file stays intact.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from spade.errors import InputError
from spade.types import to_json

_FULL = (errno.ENOSPC, errno.EDQUOT)


def atomic_write(path: Path, data: bytes | str, *, sync: bool = True) -> None:
    """Replace `path` by `data` (text is UTF-8). Raises InputError when the file system refuses.

    Without `sync` the caller sees to it that the file reaches the disk.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with _file_system(path):
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                _write_all(fd, raw)
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        if sync:
            _sync_folder(path.parent)


def make_folder(path: Path) -> Path:
    """Make `path` a folder, and those above it. Raises InputError when the file system refuses."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path}: {error.strerror}; choose another place") from error
    return path


def write_json(path: Path, value: Any) -> None:
    """`atomic_write` of a record or plain value as indented JSON; NaN and infinities become null."""
    atomic_write(path, json.dumps(plain(value), indent=2, ensure_ascii=False, default=_scalar) + "\n")


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object. Raises InputError calling the file `what` when it is absent or broken."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"there is no {what} at {path}") from error
    except OSError as error:
        raise InputError(f"{what} {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(
            f"{what} {path} is not valid JSON ({error}); it is damaged or another kind of file"
        ) from error
    if not isinstance(value, dict):
        raise InputError(f"{what} {path} must hold a JSON object, not a {type(value).__name__}")
    return value


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as JSON lines, each ending in a newline; NaN and infinities become null."""
    return "".join(json.dumps(plain(row), ensure_ascii=False, default=_scalar) + "\n" for row in rows)


def append_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows as JSON lines in one write and fsync; a failed write leaves the file as it was."""
    text = json_lines(rows)
    if not text:
        return
    with _file_system(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        size = os.fstat(fd).st_size
        try:
            _write_all(fd, text.encode("utf-8", "surrogatepass"))
            os.fsync(fd)
        except OSError:
            os.ftruncate(fd, size)
            raise
        finally:
            os.close(fd)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All complete rows; a torn last line is ignored, a missing file is empty.

    Raises InputError naming the line when a complete line is not a JSON object.
    """
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path} line {number} is not valid JSON; the file is damaged") from error
        if not isinstance(row, dict):
            raise InputError(f"{path} line {number} is not a JSON object; the file is damaged")
        rows.append(row)
    return rows


def cut_torn_line(path: Path) -> int:
    """Cut what follows the last newline; returns the number of bytes removed."""
    data = path.read_bytes()
    keep = data.rfind(b"\n") + 1
    if keep < len(data):
        with _file_system(path):
            os.truncate(path, keep)
    return len(data) - keep


def plain(value: Any) -> Any:
    """Records to plain JSON values, with NaN and infinities as None (JSON has no word for them)."""
    return _finite(to_json(value))


def path_inside(root: Path, name: str) -> Path:
    """`root / name` if that can only be inside `root`; the target need not exist.

    Raises InputError for an absolute name, a `..` part, or a symbolic link on the way.
    """
    path = root
    for part in _parts(root, name):
        path = path / part
        if path.is_symlink():
            raise InputError(
                f"'{name}' leads through the symbolic link {path}; links are not followed out of {root}"
            )
    return path


def open_inside(root: Path, name: str) -> BinaryIO:
    """Open the regular file `root / name` for reading without following any link below `root`.

    Race-free version of `path_inside`: every folder is opened relative to the one above it.
    Raises InputError for a name that leaves `root`, a link, a missing file, or anything not a plain file.
    """
    parts = _parts(root, name)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = -1
    try:
        fd = os.open(root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        for part in parts:
            above, fd = fd, os.open(part, flags, dir_fd=fd)
            os.close(above)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise InputError(f"'{name}' in {root} is not a plain file")
        return os.fdopen(os.dup(fd), "rb")
    except OSError as error:
        why = {errno.ELOOP: "is a symbolic link, which is not followed", errno.ENOENT: "does not exist"}
        raise InputError(f"'{name}' in {root} {why.get(error.errno or 0, error.strerror)}") from error
    finally:
        if fd >= 0:
            os.close(fd)


def _parts(root: Path, name: str) -> list[str]:
    parts = name.split("/")
    if not name or "\0" in name or Path(name).is_absolute() or any(p in ("", ".", "..") for p in parts):
        raise InputError(f"the name {name!r} does not stay inside {root}; use a plain relative path")
    return parts


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _file_system(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            hint = "the disk is full; free some space and run the same command again to resume"
        else:
            hint = f"{error.strerror}; choose another place"
        raise InputError(f"cannot write {path}: {hint}") from error


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return value


def _scalar(value: Any) -> Any:
    """Numpy and torch scalars, without importing either."""
    if hasattr(value, "item"):
        return _finite(value.item())
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content in hex. Raises OSError when it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
