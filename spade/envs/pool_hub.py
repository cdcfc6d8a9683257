"""Pools from the Hugging Face hub: a pinned revision, and a hash for every file that becomes a program.

    hub:owner/name@REVISION            a dataset repository at one commit (40 hex digits)
    hub:owner/name@REVISION:folder     a folder of it
    hub:./folder                       a local folder in the same form

What may lie there: a pool with `manifest.json`; `.py` files with a list of their hashes in the format of
`sha256sum` (`checksums.sha256`, `SHA256SUMS`), as the static pools published with arXiv 2608.19197; `.jsonl`
or `.parquet` rows with `code` and `sha256`. A file without a hash, or with another one, is refused.
The programs come back unjudged: nothing is played before it was validated here.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade.envs.pool import MANIFEST, Pool, Provenance, read_pool
from spade.envs.pool_exchange import declared_type, json_rows, program_of_row
from spade.envs.reading import read_program
from spade.errors import InputError
from spade.files import file_sha256, path_inside
from spade.types import EnvProgram

PREFIX = "hub:"
SUMS = ("checksums.sha256", "SHA256SUMS", "sha256sums.txt")
"""Names of a list of hashes, the first found counts."""
WANTED = ("*.py", "*.hint.txt", "*.jsonl", "*.parquet", "*.json", *SUMS, *(f"*/{name}" for name in SUMS))
"""Files that are fetched of a repository."""
_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SUM = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


@dataclass(frozen=True, slots=True)
class HubRef:
    """A parsed reference: a repository at a commit, or a local folder (`revision` empty)."""

    repo: str
    revision: str
    folder: str


def parse_ref(ref: str) -> HubRef:
    """Read `hub:...`. Raises InputError when it has another form or names no commit."""
    text = ref.removeprefix(PREFIX)
    if text.startswith((".", "/", "~")):
        return HubRef(str(Path(text).expanduser()), "", "")
    repo, _, rest = text.partition("@")
    revision, _, folder = rest.partition(":")
    if not _NAME.fullmatch(repo):
        raise InputError(f"train.pool {ref}: write hub:owner/name@COMMIT, or hub:./folder")
    if not _COMMIT.fullmatch(revision):
        raise InputError(
            f"train.pool {ref}: name the commit (40 hex digits) after @: every run has to play the same"
        )
    return HubRef(repo, revision, folder)


def hub_pool(ref: str) -> Pool:
    """The programs of a reference, each checked against its hash, unjudged.

    Raises InputError when the repository cannot be had, a file lacks its hash or does not match it.
    """
    spec = parse_ref(ref)
    root = _fetched(ref, spec)
    found = _programs(root, ref)
    programs: dict[str, EnvProgram] = {}
    for program in found.programs:
        programs.setdefault(program.id, program)  # of two copies the first stays
    origin = {**found.origin, "hub": spec.repo, "revision": spec.revision, "folder": spec.folder}
    return Pool(tuple(programs.values()), found.tokens, origin, dict(found.provenance))


def pool_cache() -> Path:
    """`$SPADE_CACHE/pools`, else `~/.cache/spade/pools`."""
    root = os.environ.get("SPADE_CACHE")
    return (Path(root).expanduser() if root else Path.home() / ".cache" / "spade") / "pools"


def _fetched(ref: str, spec: HubRef) -> Path:
    """The folder with the files: local, or a copy of the commit in the cache (real files, no links)."""
    if not spec.revision:
        if not Path(spec.repo).is_dir():
            raise InputError(f"train.pool {ref}: there is no folder {spec.repo}")
        return Path(spec.repo).resolve()
    from huggingface_hub import snapshot_download

    try:
        patterns = [f"{spec.folder}/{name}" for name in WANTED] if spec.folder else list(WANTED)
        place = snapshot_download(
            spec.repo, repo_type="dataset", revision=spec.revision, allow_patterns=patterns,
            local_dir=pool_cache() / f"{spec.repo.replace('/', '--')}-{spec.revision[:12]}",
        )  # fmt: skip
    except (OSError, ValueError, RuntimeError) as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise InputError(
            f"train.pool {ref}: the repository cannot be had ({why}); check name, commit and network"
        ) from error
    return path_inside(Path(place), spec.folder) if spec.folder else Path(place)


def _programs(root: Path, ref: str) -> Pool:
    if (root / MANIFEST).is_file():
        return read_pool(root)
    for name in SUMS:
        if (root / name).is_file():
            return _summed(root, root / name)
    rows = sorted([*root.glob("*.jsonl"), *root.glob("*.parquet"), *root.glob("data/*.parquet")])
    found = [program for file in rows for program in _from_rows(file)]
    if not found:
        raise InputError(
            f"train.pool {ref}: there is neither {MANIFEST} nor {SUMS[0]} nor a .jsonl or .parquet file"
        )
    return Pool(tuple(found), 0, {"files": [file.name for file in rows]}, {p.id: Provenance() for p in found})


def _summed(root: Path, sums: Path) -> Pool:
    """The `.py` files that a list of hashes names; each must be there and match, and none may be unlisted."""
    found, listed = [], set()
    for number, line in enumerate(sums.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        match = _SUM.fullmatch(line.rstrip())
        if match is None:
            raise InputError(f"{sums}:{number} is no line of sha256sum")
        path = path_inside(root, match.group(2))
        if path.suffix != ".py":
            continue
        if not path.is_file() or file_sha256(path) != match.group(1).lower():
            raise InputError(f"{path} is missing or does not match {sums.name}; get it again")
        listed.add(path.resolve())
        code = read_program(path).code
        skill = "" if path.parent == root else path.parent.name.replace("_", " ").title()
        found.append(EnvProgram.of(code, skill=skill, game_type=declared_type(code), source="hub"))
    if unlisted := sorted(p for p in root.rglob("*.py") if p.resolve() not in listed):
        raise InputError(f"{unlisted[0]} is not listed in {sums.name}; a program without a hash is not used")
    if not found:
        raise InputError(f"{sums} lists no .py files")
    origin = {"checksums": file_sha256(sums)}
    return Pool(tuple(found), 0, origin, {p.id: Provenance() for p in found})


def _from_rows(file: Path) -> Iterator[EnvProgram]:
    for where, row in _rows(file):
        if not isinstance(row, dict) or not row.get("sha256"):
            raise InputError(f"{where} has no sha256; a program without a hash is not used")
        yield program_of_row(row, where, source="hub")


def _rows(file: Path) -> Iterator[tuple[str, Any]]:
    if file.suffix == ".jsonl":
        yield from json_rows(file)
        return
    parquet = importlib.import_module("pyarrow.parquet")  # it comes with datasets, and has no types
    try:
        rows = parquet.read_table(file).to_pylist()
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read as parquet ({error}); get it again") from error
    yield from ((f"{file}:{number}", row) for number, row in enumerate(rows, 1))
