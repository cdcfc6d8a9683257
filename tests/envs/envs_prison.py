"""Runs `levels_probe.py` under other conditions: another user, another Python, other policies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pydantic
import pytest

import spade

NOBODY = 65534
HERE = Path(__file__).parent
ROOT = Path(spade.__file__).parents[1]
SITE = Path(pydantic.__file__).parents[1]
LEFT_OUT = ("site-packages", "test", "tests", "idlelib", "tkinter", "ensurepip", "config-*")


def skip_loudly(text: str) -> None:
    """Skip, and say so among the warnings too."""
    warnings.warn(f"tests of the sandbox's levels DID NOT RUN: {text}", stacklevel=2)
    pytest.skip(text)


def open_to_all(path: Path) -> bool:
    """Whether every user can reach and read `path`."""
    path = path.resolve()
    return all(p.stat().st_mode & 0o005 == 0o005 for p in (path, *path.parents) if p.is_dir())


def mirror_python(folder: Path) -> Path:
    """A copy of this interpreter and its standard library in `folder`; hard links where that is possible."""

    def copy(source: str, target: str) -> str:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)
        return target

    base, paths = Path(sys.base_prefix), sysconfig.get_paths()
    executable = Path(sys.executable).resolve()
    (folder / "bin").mkdir(parents=True)
    copy(str(executable), str(folder / "bin" / executable.name))
    stdlib = Path(paths["stdlib"])
    target = folder / stdlib.relative_to(base)
    shutil.copytree(stdlib, target, ignore=shutil.ignore_patterns(*LEFT_OUT), copy_function=copy)
    for library in (base / "lib").glob("libpython*.so*"):
        copy(str(library), str(folder / "lib" / library.name))
    return folder / "bin" / executable.name


def make_folder(mode: int) -> Path:
    """A new temporary folder with these permissions; pytest's own are for one user only."""
    folder = Path(tempfile.mkdtemp(prefix="spade_python_"))
    folder.chmod(mode)
    return folder


def probe(python: Path, levels: list[str], *conditions: str, path: str | None = None) -> dict[str, Any]:
    """Results of `levels_probe.py` under `conditions`, the options of `imprisoned.py`."""
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE, SITE))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": path or os.environ["PATH"],
        "OMP_NUM_THREADS": "1",
        "LD_LIBRARY_PATH": str(python.parent.parent / "lib"),
        "HOME": "/",
    }
    command = [sys.executable, str(HERE / "imprisoned.py"), *conditions, "--"]
    command += [str(python), str(HERE / "levels_probe.py"), *levels]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)  # type: ignore[no-any-return]
