"""How a zygote is started: where, with which command, in which environment."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from spade.envs import bwrap
from spade.envs.contract import ALLOWED_MODULES
from spade.errors import SandboxError

NOBODY = 65534
"""User and group id of workers where the parent is root or has namespaces of its own."""

_FOLDER = Path(__file__).parent


class Guest(NamedTuple):
    """What the workers of a zygote run, files of this folder, and which modules may be imported there."""

    files: tuple[str, ...]
    """Names without `.py`, loaded in order; the last one's `main` serves the channel."""
    modules: tuple[str, ...]
    stack_mb: int = 0
    """Stack of a worker's one thread in MiB, taken out of its memory as it grows; 0 leaves the system's."""


PROGRAMS = Guest(("worker",), ALLOWED_MODULES)
"""Environment programs."""


@dataclass(frozen=True, slots=True)
class Place:
    """One way to isolate a zygote."""

    level: str
    how: str = ""
    """Who makes the namespaces of L3: `own` system calls or `bwrap`; empty at the other levels."""

    def __str__(self) -> str:
        return f"{self.level} (namespaces: {self.how})" if self.how else self.level


def numpy_folder() -> str:
    """Folder that holds the `numpy` package. Raises SandboxError if it is not installed."""
    spec = importlib.util.find_spec("numpy")
    if spec is None or spec.origin is None:
        raise SandboxError("sandbox.numpy is true, but numpy is not installed; pip install numpy.")
    return str(Path(spec.origin).parent.parent)


def zygote_command(
    place: Place,
    control: int,
    hash_seed: int,
    memory_mb: int,
    numpy: bool = False,
    guest: Guest = PROGRAMS,
) -> list[str]:
    """The command that starts a zygote at `place`; descriptor `control` is its end of the control socket.

    `memory_mb` is what a worker may take beyond the zygote itself, in MiB. Raises SandboxError as
    `numpy_folder`.
    """
    packages = numpy_folder() if numpy else ""
    settings = {
        "level": place.level,
        "how": place.how,
        "memory_mb": memory_mb,
        "uid": NOBODY,
        "modules": guest.modules,
        "files": guest.files,
        "stack_mb": guest.stack_mb,
        "tools": str(_FOLDER / "tools.py"),
        "numpy": packages,
    }
    command = [sys.executable, "-s", "-S", "-P", "-B", str(_FOLDER / "zygote.py")]
    command += [str(control), json.dumps(settings)]
    if place.how != "bwrap":
        return command
    extra = [str(_FOLDER)]
    if packages:
        extra += [os.path.join(packages, name) for name in ("numpy", "numpy.libs")]
    return bwrap.wrapped(bwrap.find() or "bwrap", command, NOBODY, clean_environment(hash_seed), extra)


def clean_environment(hash_seed: int) -> dict[str, str]:
    """The fixed variables of a zygote, and the library path where the interpreter itself needs one."""
    fixed = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": str(hash_seed),
    }
    if library_path := os.environ.get("LD_LIBRARY_PATH"):
        fixed["LD_LIBRARY_PATH"] = library_path
    return fixed
