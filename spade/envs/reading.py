"""What a user names: program files, folders, manifests and `key=value` overrides, read with clear errors."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spade.config import Config, SandboxConfig
from spade.config_load import with_overrides
from spade.errors import ConfigError, InputError
from spade.types import EnvProgram

MAX_SOURCE_BYTES = 150_000
"""Longer files are not read: as JSON they could be longer than one frame of the channel to a worker."""

_OVERRIDE = re.compile(r"[A-Za-z_][\w.]*=")
_SECTIONS = ("sandbox", "validator")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class UnreadableProgram(InputError):
    """A file that is there and cannot be a program; `code` names why, as a verdict's code would."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def read_program(path: str | Path) -> EnvProgram:
    """A program from a UTF-8 file. Raises UnreadableProgram, or InputError if there is no such file."""
    where = Path(path)
    try:
        if where.is_dir():
            raise InputError(f"{path} is a folder; name the Python files in it.")
        if not where.is_file() and where.exists():
            raise UnreadableProgram("unreadable", f"{path} is not a regular file; name a Python file.")
        if (size := where.stat().st_size) > MAX_SOURCE_BYTES:
            text = f"{path} has {size} bytes; a program may have at most {MAX_SOURCE_BYTES}."
            raise UnreadableProgram("too_big", text)
        return EnvProgram.of(where.read_bytes().decode("utf-8-sig"), source=str(path))
    except FileNotFoundError as error:
        if where.is_symlink():
            text = f"{path} is a link that leads nowhere; mend or remove it."
            raise UnreadableProgram("unreadable", text) from error
        raise InputError(f"There is no file {path}; check the name.") from error
    except UnicodeDecodeError as error:
        text = f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8."
        raise UnreadableProgram("not_utf8", text) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UnreadableProgram("unreadable", f"{path} cannot be read ({reason}).") from error


def as_program(program: EnvProgram | Path | str) -> EnvProgram:
    """The record of a program given as such, as a path, or as text. Raises InputError for a bad path."""
    if isinstance(program, EnvProgram):
        return program
    if isinstance(program, Path) or "\n" not in program:
        return read_program(program)
    return EnvProgram.of(program, source="the program")


def program_files(names: Sequence[str]) -> list[Path]:
    """Files named, all `*.py` below folders named (sorted), and those that manifests list; each file once.

    Raises InputError for what does not exist.
    """
    found: dict[str, Path] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*.py") if not p.is_dir())
            if not inside:
                raise InputError(f"There is no Python file in the folder {path}.")
        elif path.suffix == ".json" and path.is_file():
            inside = _listed(path)
        elif path.exists() or path.is_symlink():
            inside = [path]
        else:
            raise InputError(f"There is no file or folder {path}; check the name.")
        for file in inside:
            found.setdefault(os.path.realpath(file), file)
    return list(found.values())


def _listed(manifest: Path) -> list[Path]:
    """Files of a manifest: a list of rows with a "file", or a pool's manifest with such a list."""
    try:
        value = json.loads(manifest.read_bytes())
        rows = value["programs"] if isinstance(value, dict) else value
        names = [row["file"] for row in rows]
        files = [manifest.parent / name for name in names]
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        text = f"{manifest} is not a manifest that lists program files; name Python files or folders."
        raise InputError(text) from error
    folder = os.path.realpath(manifest.parent)
    for file in files:
        if not Path(os.path.realpath(file)).is_relative_to(folder):
            raise InputError(f"{manifest} lists {file}, which is outside its folder; get the manifest again.")
        if not file.exists():
            raise InputError(f"{manifest} lists {file}, which is missing; restore it or mend the manifest.")
    return files


def split_overrides(items: Sequence[str]) -> tuple[list[str], list[str]]:
    """File names, and `section.key=value` overrides; what exists as a file is one."""
    overrides = [i for i in items if _OVERRIDE.match(i) and not Path(i).exists()]
    return [i for i in items if i not in overrides], overrides


def settings(overrides: Sequence[str], level: str | None, **limits: Any) -> Config:
    """Default configuration with overrides of the two sections that matter here, a level and limits.

    Raises ConfigError for a key that is unknown or has no effect on these commands.
    """
    for text in overrides:
        if text.partition("=")[0].partition(".")[0] not in _SECTIONS:
            raise ConfigError(f"'{text}': these commands take keys of {' and '.join(_SECTIONS)} only.")
    cfg = with_overrides(Config(), overrides, "the command line")
    given = {} if level is None else {"force_level": level, "min_level": level}
    sandbox = SandboxConfig(**{**cfg.sandbox.model_dump(), **given, **limits})
    return cfg.model_copy(update={"sandbox": sandbox})


def printable(text: str) -> str:
    """Text of a program for a terminal: what could steer it (escapes, reversed writing) is spelled out."""
    return _CONTROL.sub(lambda m: f"\\u{ord(m.group()):04x}", text)
