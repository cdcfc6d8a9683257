"""Where `bfcl-eval` is, which bytes are meant, and its data.

The package is a wheel on the package index that holds data, the classes behind the calls, and the checker. It
is never installed: its pinned dependencies (numpy 1.26) break other packages. `spade data get bfcl` puts the
wheel under the data root; a folder `bfcl/bfcl_eval` there (unpacked, or linked to a checkout) serves as well,
if what is used of it has the pinned content.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from spade.errors import InputError
from spade_evals.data import DataAbsent, DataChanged, DataFile, Row, Source, data_root, get_command

VERSION: Final = "2026.3.23"
WHEEL: Final = f"bfcl/bfcl_eval-{VERSION}-py3-none-any.whl"
FOLDER: Final = "bfcl/bfcl_eval"
WHEEL_SHA256: Final = "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"
CONTENT_SHA256: Final = "9ef323890fc7c676e54f3780f867c9c2078babac70ee13d214b6e360c45f59bf"
"""Of all files that are used; equal for the wheel, the unpacked wheel, and a checkout of the same state."""

_CLASSES = "bfcl_eval/eval_checker/multi_turn_eval/func_source_code"
DOC_FILES: Final = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
"""Class -> name of its file of documentation, and of its module."""

MULTI_TURN: Final = ("base", "miss_func", "miss_param", "long_context")
SINGLE_TURN: Final = {
    "simple_python": 400, "simple_java": 100, "simple_javascript": 50, "multiple": 200, "parallel": 200,
    "parallel_multiple": 200, "irrelevance": 240, "live_simple": 258, "live_multiple": 1053,
    "live_parallel": 16, "live_parallel_multiple": 24, "live_irrelevance": 884, "live_relevance": 16,
}  # fmt: skip
"""Category -> number of questions."""


def source(size: int) -> Source:
    """The pinned data of one task."""
    wheel = DataFile(WHEEL, WHEEL_SHA256, package=f"bfcl-eval=={VERSION}")
    return Source(
        (wheel,), "bfcl-eval on the package index (ShishirPatil/gorilla)", VERSION, "Apache-2.0", size,
        instead=FOLDER,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Package:
    """The package found. `path` is what goes into `sys.path`: the wheel, or the folder above `bfcl_eval`."""

    path: Path
    sha256: str
    """Of the content that is used."""
    changed: tuple[str, ...] = ()

    def rows(self, name: str) -> list[Row]:
        """The rows of a JSON lines file below `bfcl_eval/data`."""
        text = _read(self.path, [f"bfcl_eval/data/{name}"])[0].decode("utf-8")
        return [json.loads(line) for line in text.split("\n") if line.strip()]

    def category(self, name: str) -> list[tuple[Row, list[Any] | None]]:
        """Question and reference of every item; the reference is None where the category has none."""
        questions = self.rows(f"BFCL_v4_{name}.json")
        if "relevance" in name:
            return [(row, None) for row in questions]
        answers = self.rows(f"possible_answer/BFCL_v4_{name}.json")
        if [q["id"] for q in questions] != [a["id"] for a in answers]:
            raise ValueError(f"questions and answers of {name} do not belong together")
        return [(q, a["ground_truth"]) for q, a in zip(questions, answers, strict=True)]

    def docs(self) -> dict[str, list[Row]]:
        """The documentation of every class's functions."""
        return {name: self.rows(f"multi_turn_func_doc/{file}.json") for name, file in DOC_FILES.items()}


def find_package(task: str, root: Path | None = None, allow_changed: bool = False) -> Package:
    """The package below the data root; the wheel wins over a folder.

    Raises DataAbsent, DataChanged for other content than the pinned one unless `allow_changed`, InputError
    for a damaged file.
    """
    folder = root or data_root()
    wheel, unpacked = folder / WHEEL, folder / FOLDER
    if not wheel.is_file() and not unpacked.is_dir():
        raise DataAbsent(f"no file {wheel} and no folder {unpacked}", get_command("bfcl", root))
    path = wheel if wheel.is_file() else unpacked.parent
    found = _wheel_content(wheel, wheel.stat().st_mtime_ns) if wheel.is_file() else content(path)
    if found == CONTENT_SHA256:
        return Package(path, found)
    named = wheel if wheel.is_file() else unpacked
    if not allow_changed:
        raise DataChanged(
            f"{named} does not hold the pinned bfcl-eval {VERSION} of {task}: SHA-256 {found[:12]} against "
            f"{CONTENT_SHA256[:12]}; fetch it with spade data get bfcl --force, or evaluate on it with "
            "--allow-changed-data"
        )
    return Package(path, found, (named.name,))


def used() -> list[str]:
    """Names of all files that are used."""
    data = [f"BFCL_v4_{name}.json" for name in _categories()]
    data += [f"possible_answer/BFCL_v4_{name}.json" for name in _categories() if "relevance" not in name]
    data += [f"multi_turn_func_doc/{file}.json" for file in DOC_FILES.values()]
    code = [f"{_CLASSES}/{file}.py" for file in (*DOC_FILES.values(), "long_context")]
    code += [f"bfcl_eval/eval_checker/multi_turn_eval/multi_turn_{name}.py" for name in ("checker", "utils")]
    code += ["bfcl_eval/constants/executable_backend_config.py"]
    return sorted([*(f"bfcl_eval/data/{name}" for name in data), *code])


def _categories() -> list[str]:
    return [*(f"multi_turn_{name}" for name in MULTI_TURN), *SINGLE_TURN]


@cache
def _wheel_content(path: Path, changed_at: int) -> str:
    return content(path)


def content(path: Path) -> str:
    """SHA-256 over names and hashes of all files that are used. Raises InputError for a damaged package."""
    names = used()
    digest = hashlib.sha256()
    for name, read in zip(names, _read(path, names), strict=True):
        digest.update(f"{name} {hashlib.sha256(read).hexdigest()}\n".encode())
    return digest.hexdigest()


def _read(path: Path, names: Iterable[str]) -> list[bytes]:
    try:
        if path.is_dir():
            return [(path / name).read_bytes() for name in names]
        with zipfile.ZipFile(path) as archive:
            return [archive.read(name) for name in names]
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} is not a whole bfcl-eval package ({error}); "
            "fetch it again with spade data get bfcl --force"
        ) from error
