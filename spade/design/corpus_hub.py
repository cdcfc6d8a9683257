"""Samples of hub data sets: taken once by streaming, saved in the cache, and the same ever after.

    hub:owner/name[@revision][:config][:split]      or a local folder in the hub's format: hub:./folder

The first use streams rows in a shuffled order until enough different texts were found, and writes them with a
record of where they came from. Later uses read the saved sample only: no network, no other sample. An empty
config is the default one, so `hub:owner/name::test` names a split alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spade.design.corpus import TEXT_KEYS, row_text, same_text_key
from spade.errors import InputError
from spade.files import file_sha256, read_json, write_json

SAMPLE_SEED = 42
"""Order of the streamed rows. It is not the run's seed, so that runs with other seeds share one sample."""
BUFFER = 10_000
"""Rows among which the stream is shuffled."""
PATIENCE = 1000
"""Rows without text at the start after which a data set is given up."""
RECORD = "sample.json"
ROWS = "sample.jsonl"
_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True, slots=True)
class HubSpec:
    """A parsed reference. `repo` is a hub name or, if `local`, a folder."""

    repo: str
    revision: str | None
    config: str | None
    split: str
    local: bool


def parse_spec(ref: str) -> HubSpec:
    """Read `hub:...`. Raises InputError when it has another form."""
    name, _, rest = ref.removeprefix("hub:").partition(":")
    config, _, split = rest.partition(":")
    if name.startswith((".", "/", "~")):
        folder = Path(name).expanduser()
        if not folder.is_dir():
            raise InputError(f"corpus {ref}: there is no folder {folder}")
        return HubSpec(str(folder.resolve()), None, config or None, split or "train", True)
    repo, _, revision = name.partition("@")
    if not _NAME.fullmatch(repo) or ":" in split:
        raise InputError(f"corpus {ref}: write hub:owner/name[@revision][:config][:split]")
    return HubSpec(repo, revision or None, config or None, split or "train", False)


def saved_sample(ref: str, count: int, text_key: str | None = None) -> Path:
    """File of the saved sample of `count` rows, taken now if there is none; `text_key` names their text.

    Raises InputError when the data set cannot be read, holds no text, or the saved file was altered.
    """
    spec = parse_spec(ref)
    asked = [asdict(spec), count, SAMPLE_SEED, *([text_key] if text_key else [])]
    key = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]
    folder = cache_folder() / f"{re.sub(r'[^A-Za-z0-9]+', '-', Path(spec.repo).name)}-{key}"
    if not (folder / RECORD).is_file():
        _take(ref, spec, count, folder, (text_key,) if text_key else TEXT_KEYS)
    record = read_json(folder / RECORD, "corpus sample record")
    if file_sha256(folder / ROWS) != record.get("sha256"):
        raise InputError(f"the saved sample {folder / ROWS} was altered; delete {folder} to take it again")
    return folder / ROWS


def cache_folder() -> Path:
    """`$SPADE_CACHE/corpora`, else `~/.cache/spade/corpora`."""
    root = os.environ.get("SPADE_CACHE")
    return (Path(root).expanduser() if root else Path.home() / ".cache" / "spade") / "corpora"


def sample_record(path: Path) -> dict[str, Any] | None:
    """The record beside a saved sample: source, revision, count, SHA-256; None for any other file."""
    record = path.with_name(RECORD)
    return read_json(record, "corpus sample record") if path.name == ROWS and record.is_file() else None


def _take(ref: str, spec: HubSpec, count: int, folder: Path, keys: Sequence[str]) -> None:
    """Stream a sample into `folder`, which appears complete or not at all."""
    revision = _revision(ref, spec)
    print(f"corpus: taking {count:,} documents of {spec.repo} ({revision[:12]}).", file=sys.stderr)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        where = f"Cannot write to {folder.parent} ({error.strerror})"
        raise InputError(f"{where}; set SPADE_CACHE to a folder.") from error
    try:
        written = _write(_rows(ref, spec, revision), scratch / ROWS, count, ref, keys)
        record = {
            "source": ref,
            **asdict(spec),
            "revision": revision,
            "seed": SAMPLE_SEED,
            "buffer": BUFFER,
            "asked": count,
            "count": written,
            "sha256": file_sha256(scratch / ROWS),
        }
        write_json(scratch / RECORD, record)
        os.replace(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write(
    rows: Iterable[dict[str, Any]], path: Path, count: int, ref: str, keys: Sequence[str] = TEXT_KEYS
) -> int:
    """Write up to `count` rows with different texts; returns how many there were."""
    seen: set[str] = set()
    with path.open("w", encoding="utf-8") as file:
        for number, row in enumerate(rows):
            text = row_text(row, keys)
            if text is None:
                if not seen and number + 1 >= PATIENCE:
                    break
                continue
            if (key := same_text_key(text)) in seen:
                continue
            seen.add(key)
            file.write(json.dumps({"text": text, **_metadata(row, keys)}, ensure_ascii=False) + "\n")
            if len(seen) >= count:
                break
    if not seen:
        raise InputError(f"corpus {ref}: no row has text under {' or '.join(keys)}")
    return len(seen)


def _metadata(row: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """The other fields that JSON has a word for."""
    kept = {}
    for key, value in row.items():
        if key in keys:
            continue
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            continue
        kept[key] = value
    return kept


def _revision(ref: str, spec: HubSpec) -> str:
    """The commit of the data set; of a local folder, a hash of its files."""
    if spec.local:
        digest = hashlib.sha256()
        for path in sorted(p for p in Path(spec.repo).rglob("*") if p.is_file()):
            digest.update(f"{path.relative_to(spec.repo)}\0{file_sha256(path)}\n".encode())
        return digest.hexdigest()
    from huggingface_hub import HfApi

    with _Readable(ref):
        return str(HfApi().dataset_info(spec.repo, revision=spec.revision).sha)


def _rows(ref: str, spec: HubSpec, revision: str) -> Iterator[dict[str, Any]]:
    """Rows of the data set, streamed in a shuffled order."""
    from datasets import load_dataset

    pinned = None if spec.local else revision
    with _Readable(ref):
        stream = load_dataset(spec.repo, spec.config, split=spec.split, revision=pinned, streaming=True)
        for row in stream.shuffle(seed=SAMPLE_SEED, buffer_size=BUFFER):
            yield dict(row)


class _Readable:
    """Turns what the hub's libraries raise into one sentence."""

    def __init__(self, ref: str) -> None:
        self.ref = ref

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, OSError | ValueError | RuntimeError):
            why = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            raise InputError(
                f"corpus {self.ref}: the data set cannot be read ({why}); check name, config, split and "
                "network, or give a file"
            ) from error
