"""A pool: a folder of admitted programs with a manifest that says where they came from.

    POOL/manifest.json       one row a program (file, sha256, skill, game type, hint); origin; token cost
    POOL/programs/<id>.py    the program text, named by its content hash

A pool is data from elsewhere: names may not leave the folder and every file must match its hash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spade.errors import InputError
from spade.files import atomic_write, open_inside, read_json, write_json
from spade.types import EnvProgram, content_id

MANIFEST = "manifest.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Pool:
    """Programs in manifest order. `tokens` is what sampling them cost, the rejected attempts included."""

    programs: tuple[EnvProgram, ...]
    tokens: int = 0
    origin: dict[str, Any] = field(default_factory=dict)
    """How the pool was made: model, config digest, seed, attempts."""

    @property
    def digest(self) -> str:
        """Hash over the programs' ids in order."""
        return content_id("\n".join(p.id for p in self.programs))


def save_program(folder: Path, program: EnvProgram) -> Path:
    """Write one program file into `folder`; a file that is there already is the same text."""
    path = folder / f"{program.id}.py"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(path, program.code)
    return path


def write_pool(folder: Path, pool: Pool) -> None:
    """Write programs, then the manifest: a folder without manifest is an unfinished pool."""
    rows = []
    for program in pool.programs:
        path = save_program(folder / "programs", program)
        rows.append(
            {
                "id": program.id,
                "file": f"programs/{path.name}",
                "sha256": program.id,
                "skill": program.skill,
                "game_type": program.game_type,
                "hint": program.hint,
                "step": program.step,
            }
        )
    manifest = {"format": FORMAT, "tokens": pool.tokens, "origin": pool.origin, "programs": rows}
    write_json(folder / MANIFEST, manifest)


def read_pool(folder: Path) -> Pool:
    """Read and check a pool. Raises InputError naming the file that is missing, altered or outside."""
    manifest = read_json(folder / MANIFEST, "pool manifest")
    if manifest.get("format") != FORMAT:
        found = manifest.get("format")
        raise InputError(f"{folder / MANIFEST} has format {found!r}; this version reads format {FORMAT}")
    rows = manifest.get("programs")
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{folder / MANIFEST} lists no programs")
    programs = tuple(_read_program(folder, row) for row in rows)
    try:
        tokens = int(manifest.get("tokens") or 0)
    except (TypeError, ValueError) as error:
        raise InputError(f"{folder / MANIFEST}: tokens must be a whole number") from error
    return Pool(programs, tokens, dict(manifest.get("origin") or {}))


def _read_program(folder: Path, row: Any) -> EnvProgram:
    if not isinstance(row, dict) or not isinstance(row.get("file"), str):
        raise InputError(f"{folder / MANIFEST} has a row without a file name")
    with open_inside(folder, row["file"]) as file:
        code = file.read().decode("utf-8", "surrogatepass")
    if content_id(code) != row.get("sha256"):
        raise InputError(f"{folder / row['file']} does not match its sha256 in the manifest; get it again")
    return EnvProgram.of(
        code,
        skill=str(row.get("skill", "")),
        game_type=row.get("game_type", "multi_turn"),
        hint=row.get("hint"),
        step=int(row.get("step") or 0),
        source="pool",
    )
