"""Pools in and out: a folder of programs, or one JSON line a program.

What comes in is data from elsewhere: names may not leave the folder, texts must match their hashes where
there are any, and every program is validated here before it is part of a pool.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spade.envs.interop.foreign import adapted
from spade.envs.pool import MANIFEST, ROWS, Pool, Provenance, program_row, read_pool, write_pool
from spade.envs.reading import MAX_SOURCE_BYTES, read_program
from spade.errors import InputError
from spade.files import atomic_write, file_sha256, json_lines, make_folder, path_inside
from spade.types import GAME_TYPES, EnvProgram, GameType, content_id

FORMATS = ("folder", "jsonl")


def export_pool(pool: Pool, out: Path, form: str) -> Path:
    """Write a pool as a `folder` (manifest and files) or as `jsonl`, one object a program with its code.

    Raises InputError when the place is taken.
    """
    if out.exists() and (out.is_file() or any(out.iterdir())):
        raise InputError(f"{out} is there already; choose another place")
    if form == "folder":
        write_pool(out, pool)
        return out
    rows = []
    for program in pool.programs:
        row = program_row(program, f"programs/{program.id}.py", pool.provenance.get(program.id))
        rows.append({**row, "code": program.code, "origin": pool.origin})
    make_folder(out.parent)
    atomic_write(out, json_lines(rows))
    return out


def import_programs(source: Path) -> Pool:
    """Programs of a pool, of a folder of `.py` files, or of a `.jsonl` file with `code`; not yet validated.

    Sources for gymnasium or GEM are rewritten (`spade.envs.interop.foreign`). Earlier verdicts are kept
    where there are any and believed only as far as `needs_validation` allows.
    Raises InputError naming the file or line that is wrong.
    """
    if source.is_dir() and ((source / MANIFEST).is_file() or (source / ROWS).is_file()):
        return read_pool(source)
    if source.is_dir() and (inside := exported_pool(source)) is not None:
        return read_pool(inside)
    if source.is_dir():
        found = [_from_file(path, source) for path in sorted(source.rglob("*.py"))]
        origin: dict[str, Any] = {"imported": source.name, "files": len(found)}
    elif source.suffix == ".jsonl" and source.is_file():
        found = [program_of_row(row, where) for where, row in json_rows(source)]
        origin = {"imported": source.name, "sha256": file_sha256(source)}
    else:
        raise InputError(f"{source} is neither a folder of programs nor a .jsonl file")
    programs: dict[str, EnvProgram] = {}
    for program in found:
        programs.setdefault(program.id, program)  # of two copies the first stays, with its hint
    if not programs:
        raise InputError(f"{source} holds no programs")
    return Pool(tuple(programs.values()), 0, origin, {i: Provenance() for i in programs})


def exported_pool(source: Path) -> Path | None:
    """The pool inside a folder that `spade.envs.interop` wrote, or None.

    Raises InputError when it is a link or lies outside.
    """
    found = sorted(source.glob(f"*/pool/{MANIFEST}"))
    if len(found) != 1 or not (found[0].parents[1] / "ids.json").is_file():
        return None
    return path_inside(source, str(found[0].parent.relative_to(source)))


def _from_file(path: Path, root: Path) -> EnvProgram:
    if path.is_symlink() or not path.resolve().is_relative_to(root.resolve()):
        raise InputError(f"{path} points out of {root}; copy the file into the folder")
    code = adapted(read_program(path).code)
    hint = path.with_suffix(".hint.txt")
    text = hint.read_text(encoding="utf-8").strip() if hint.is_file() and not hint.is_symlink() else None
    return EnvProgram.of(code, game_type=declared_type(code), hint=text, source="imported")


def json_rows(source: Path) -> Iterator[tuple[str, Any]]:
    """Each line's place and value; empty lines are left out. Raises InputError for a line that is no JSON."""
    with source.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield f"{source}:{number}", json.loads(line)
                except json.JSONDecodeError as error:
                    raise InputError(f"{source}:{number} is not valid JSON ({error})") from error


def program_of_row(row: Any, where: str, source: str = "imported") -> EnvProgram:
    """A program from `{"code": ..., "game_type", "skill", "hint", "sha256"}`, of which only the code must be
    there. Raises InputError naming `where` for anything else."""
    try:
        code, kind = row["code"], row.get("game_type") or declared_type(row["code"])
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{where} is no program with a code ({error!r})") from error
    if not isinstance(code, str) or len(code) > MAX_SOURCE_BYTES or kind not in GAME_TYPES:
        raise InputError(f"{where} has no usable code or game_type")
    if (known := row.get("sha256")) is not None and known != content_id(code):
        raise InputError(f"{where} does not match its sha256; get it again")
    hint = row.get("hint")
    hint = hint if isinstance(hint, str) else None
    return EnvProgram.of(code, skill=str(row.get("skill") or ""), game_type=kind, hint=hint, source=source)


def declared_type(code: str) -> GameType:
    """The constant `game_type` of the program's last class that has one; `multi_turn` without any."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "multi_turn"  # the validator says what is wrong with it
    found: GameType = "multi_turn"
    for node in (n for kind in tree.body if isinstance(kind, ast.ClassDef) for n in kind.body):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            named = any(isinstance(t, ast.Name) and t.id == "game_type" for t in node.targets)
            if named and node.value.value in GAME_TYPES:
                found = node.value.value
    return found
