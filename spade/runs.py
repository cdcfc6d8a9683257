"""One folder per run: its record, its JSON-lines files, and the rules for coming back to it.

A run folder is resumed only under the identical configuration (same digest); anything else is refused with
the names of the keys that differ. While a process works in the folder it holds a lock on it.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spade.config import Config
from spade.config_load import config_digest, config_from_dict, diff_configs
from spade.errors import ConfigError, InputError
from spade.files import (
    append_lines,
    atomic_write,
    cut_torn_line,
    json_lines,
    make_folder,
    open_inside,
    path_inside,
    read_json,
    read_jsonl,
    write_json,
)
from spade.machine import hardware, versions
from spade.types import RunRecord, from_json

__all__ = ["RunFolder", "hardware", "open_inside", "publish_record", "read_record", "versions"]

RECORD = "run.json"
EVENTS = "events.jsonl"
METRICS = "metrics.jsonl"
CHECKPOINT_SCORES = "eval-checkpoints"
"""Folder of the evaluations made inside the training loop; those of the finished run are in `eval`."""

# One lock per folder and process, kept open until `finish`: POSIX drops the lock when any of its
# descriptors is closed, and does not hand it to forked children, which is what we want.
_LOCKS: dict[Path, int] = {}


class RunFolder:
    """A run folder that is open for writing. Make one with `create_or_resume`, or `open` an existing one."""

    def __init__(self, path: Path, record: RunRecord, resumed: bool = False) -> None:
        self.path = path
        self.record = record
        self.resumed = resumed

    @classmethod
    def create_or_resume(cls, cfg: Config, kind: str, command: str, resume: bool | None = None) -> RunFolder:
        """Open the folder of `cfg` (default `runs/<name>-s<seed>`).

        `resume` None resumes if the folder holds a run of the same digest and creates it otherwise; True
        insists on an existing run, False on a new one. Raises InputError when that is not possible.
        """
        path = Path(cfg.out) if cfg.out else Path("runs") / f"{cfg.name}-s{cfg.seed}"
        exists = (path / RECORD).exists()
        if resume is True and not exists:
            raise InputError(f"there is no run to resume in {path}; leave out --resume to start one")
        if resume is False and exists:
            raise InputError(f"{path} already holds a run; choose another folder with out=PATH or resume it")
        if (
            not exists
            and path.exists()
            and (not path.is_dir() or any(p.name != ".lock" for p in path.iterdir()))
        ):
            raise InputError(f"{path} exists and is not a run folder; choose another one with out=PATH")
        if exists:
            _check_same(cfg, read_record(path), path)
        make_folder(path)
        _lock(path)
        folder = cls._resume(path, command) if exists else cls._create(path, cfg, kind, command)
        folder.append(EVENTS, {"event": "resume" if exists else "start", "time": _now(), "command": command})
        return folder

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """Open an existing run folder without a lock, for reading and for adding evaluation results."""
        return cls(Path(path), read_record(path), resumed=True)

    @classmethod
    def _create(cls, path: Path, cfg: Config, kind: str, command: str) -> RunFolder:
        started = _now()
        digest = config_digest(cfg)
        stamp = started.replace("-", "").replace(":", "")[:15]
        record = RunRecord(
            id=f"{cfg.name}-s{cfg.seed}-{digest[:8]}-{stamp}",
            kind=kind,
            command=command,
            config=cfg.model_dump(mode="json"),
            digest=digest,
            seed=cfg.seed,
            versions=versions(),
            hardware=hardware(),
            data={},
            sandbox_level="",
            started=started,
        )
        folder = cls(path, record)
        folder.write_json(RECORD, record)
        return folder

    @classmethod
    def _resume(cls, path: Path, command: str) -> RunFolder:
        for file in path.rglob("*.jsonl"):
            if not file.is_symlink():
                cut_torn_line(file)
        folder = cls(path, read_record(path), resumed=True)
        folder.update_record(status="running", versions=versions(), hardware=hardware())
        return folder

    def path_of(self, name: str) -> Path:
        """Path of a file in this folder. Raises InputError for a name that leaves it."""
        return path_inside(self.path, name)

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        """Append one JSON line to `name`; on return it is on disk."""
        self.append_many(name, [row])

    def append_many(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append several JSON lines with a single fsync."""
        path = self.path_of(name)
        make_folder(path.parent)
        append_lines(path, rows)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All complete rows of a JSON-lines file; empty when it does not exist."""
        return read_jsonl(self.path_of(name))

    def truncate_after(self, name: str, step: int) -> int:
        """Drop rows whose `step` is larger: work that is going to be redone. Returns how many rows went."""
        path = self.path_of(name)
        rows = read_jsonl(path)
        kept = [row for row in rows if row.get("step", step) <= step]
        if len(kept) < len(rows):
            atomic_write(path, json_lines(kept))
        return len(rows) - len(kept)

    def write_json(self, name: str, value: Any) -> None:
        """Write a record or plain value as JSON, atomically."""
        path = self.path_of(name)
        make_folder(path.parent)
        write_json(path, value)

    def update_record(self, **changes: Any) -> None:
        """Replace fields of the record and write it."""
        self.record = dataclasses.replace(self.record, **changes)
        self.write_json(RECORD, self.record)

    def finish(self, status: str = "finished") -> None:
        """Set the final status and release the lock."""
        self.update_record(status=status)
        self.append(EVENTS, {"event": status, "time": _now()})
        _unlock(self.path)


def read_record(path: Path | str) -> RunRecord:
    """The record of a run folder. Raises InputError when it is absent, damaged or of another version."""
    tree = read_json(Path(path) / RECORD, "run record")
    try:
        return from_json(RunRecord, tree)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        needed = [f.name for f in dataclasses.fields(RunRecord) if f.default is f.default_factory]
        lacking = [name for name in needed if name not in tree]
        why = f"it has no {lacking[0]}" if lacking else str(error)
        raise InputError(f"{Path(path) / RECORD} is not a run record ({why})") from error


def publish_record(folder: RunFolder | Path | str, results_dir: Path | str) -> Path:
    """Copy a run's record to `results_dir/records/<id>.json`, which is what a repository keeps of a run.

    The copy carries the scores of the evaluations found in the run's `eval/` folder: by task, `score` and
    `parts`, each (mean, standard error, n).
    """
    record = folder.record if isinstance(folder, RunFolder) else read_record(folder)
    home = folder.path if isinstance(folder, RunFolder) else Path(folder)
    record = dataclasses.replace(record, scores={**record.scores, **_scores(home / "eval")})
    target = Path(results_dir) / "records"
    make_folder(target)
    path = path_inside(target, f"{record.id}.json")
    write_json(path, record)
    return path


def _scores(folder: Path) -> dict[str, Any]:
    """Results by task; files that are not finished evaluation results are left out."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        result = document.get("result") if isinstance(document, dict) and document.get("complete") else None
        if isinstance(result, dict):
            found[path.stem] = {key: result.get(key) for key in ("score", "parts", "faults")}
    return found


def _check_same(cfg: Config, record: RunRecord, path: Path) -> None:
    if record.digest == config_digest(cfg):
        return
    try:
        rows = [
            row
            for row in diff_configs(config_from_dict(record.config, str(path)), cfg)
            if row[0] != "out" and not row[0].startswith("track.")
        ]
    except ConfigError as error:
        raise InputError(f"{path} was made by another version of SPADE ({error}); use out=PATH") from error
    shown = ", ".join(f"{key} ({old!r} there, {new!r} now)" for key, old, new in rows[:5])
    more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
    differs = f"differing keys: {shown}{more}" if rows else "its record was changed by hand"
    raise InputError(f"{path} holds a run of another configuration; {differs}; use out=PATH for a new run")


def _lock(path: Path) -> None:
    key = path.resolve()
    if key in _LOCKS:
        return
    fd = -1
    try:
        fd = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if fd >= 0:
            os.close(fd)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise InputError(f"another process is working in {path}; wait for it or use out=PATH") from error
        return  # some network file systems have no locks; a run there is still a run
    _LOCKS[key] = fd


def _unlock(path: Path) -> None:
    fd = _LOCKS.pop(path.resolve(), None)
    if fd is not None:
        os.close(fd)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
