"""A pool: a folder of admitted programs with a manifest that says where they came from.

    POOL/manifest.json       one row a program: file, sha256, skill, hint, brief, verdict (with sandbox level,
                             battery and Python version), play statistics; origin; token cost
    POOL/programs/<id>.py    the program text, named by its content hash; <id>.hint.txt beside it

A run keeps its own pool while it goes on, with rows instead of a manifest (see `spade.envs.pool_run`):

    RUN/pool/<id>.py, RUN/pool/programs.jsonl            admitted
    RUN/rejected/<id>.py, RUN/rejected/programs.jsonl    refused, each with its reason

Either kind can be read. A pool is data from elsewhere: names may not leave the folder and every file must
match its hash.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade.errors import InputError
from spade.files import atomic_write, make_folder, open_inside, plain, read_json, read_jsonl, write_json
from spade.types import GAME_TYPES, Brief, EnvProgram, Verdict, content_id, from_json

if TYPE_CHECKING:
    from spade.config import ValidateConfig
    from spade.envs.sandbox import Sandbox

MANIFEST = "manifest.json"
ROWS = "programs.jsonl"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class PlayStats:
    """What a program's plays showed. Standard errors are None where a single play leaves them unknown."""

    plays: int
    mean_return: float | None
    return_stderr: float | None = None
    regret: float | None = None
    regret_stderr: float | None = None
    turns: float | None = None


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a program came from and what is known of it."""

    brief: dict[str, Any] = field(default_factory=dict)
    verdict: Verdict | None = None
    stats: PlayStats | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """Programs in manifest order. `tokens` is what sampling them cost, the rejected attempts included."""

    programs: tuple[EnvProgram, ...]
    tokens: int = 0
    origin: dict[str, Any] = field(default_factory=dict)
    """How the pool was made: model, config digest, seed, attempts."""
    provenance: Mapping[str, Provenance] = field(default_factory=dict)
    """By program id; programs of older pools have none."""

    @property
    def digest(self) -> str:
        """Hash over the programs' ids in order."""
        return content_id("\n".join(p.id for p in self.programs))


def _minor(version: str) -> str:
    """A Python version as far as the behaviour of programs depends on it: `3.12` of `3.12.4`."""
    return ".".join(version.split(".")[:2])


def brief_note(brief: Brief) -> dict[str, Any]:
    """A brief without its messages: what was asked and what the prompt can be made of again."""
    note = {
        "id": brief.id,
        "skill": brief.skill,
        "difficulty": brief.difficulty,
        "document": brief.document_id,
        "exemplars": list(brief.exemplar_ids),
        "seed": brief.seed,
    }
    task = {"domain": brief.domain, "variant": brief.variant}
    return {**note, **{name: value for name, value in task.items() if value}}


def save_program(folder: Path, program: EnvProgram, later: list[Path] | None = None) -> Path:
    """Write one program file into `folder`, and its hint beside it; files that are there already stay.

    Each is on disk when this returns; with `later` the caller sees to that, for the files put into it.
    """
    path = folder / f"{program.id}.py"
    texts = {path: program.code}
    if program.hint is not None:
        texts[path.with_suffix(".hint.txt")] = program.hint + "\n"
    for place, text in texts.items():
        if place.exists():
            continue
        make_folder(folder)
        atomic_write(place, text, sync=later is None)
        if later is not None:
            later.append(place)
    return path


def program_row(program: EnvProgram, file: str, provenance: Provenance | None = None) -> dict[str, Any]:
    """The manifest's row of one program."""
    row = {
        "id": program.id,
        "file": file,
        "sha256": program.id,
        "skill": program.skill,
        "game_type": program.game_type,
        "hint": program.hint,
        "step": program.step,
    }
    known = provenance or Provenance()
    extra = {"brief": known.brief, "verdict": known.verdict, "stats": known.stats}
    return {**row, **{name: plain(value) for name, value in extra.items() if value}}


def write_pool(folder: Path, pool: Pool) -> None:
    """Write programs, then the manifest: a folder without manifest is an unfinished pool.

    All files are written before the first is waited for: thousands of programs take one commit of the file
    system's journal and not one each.
    """
    rows: list[dict[str, Any]] = []
    new: list[Path] = []
    for program in pool.programs:
        path = save_program(folder / "programs", program, new)
        rows.append(program_row(program, f"programs/{path.name}", pool.provenance.get(program.id)))
    manifest = {"format": FORMAT, "tokens": pool.tokens, "origin": pool.origin, "programs": rows}
    for path in new:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    write_json(folder / MANIFEST, manifest)


def read_pool(folder: Path) -> Pool:
    """Read and check a pool, a finished one or a run's. Raises InputError naming what is missing, altered or
    outside."""
    if not (folder / MANIFEST).exists() and (folder / ROWS).is_file():
        manifest: dict[str, Any] = {"format": FORMAT, "programs": _merged(read_jsonl(folder / ROWS))}
        source = folder / ROWS
    else:
        source = folder / MANIFEST
        manifest = read_json(source, "pool manifest")
    if manifest.get("format") != FORMAT:
        found = manifest.get("format")
        raise InputError(f"{source} has format {found!r}; this version reads format {FORMAT}")
    rows = manifest.get("programs")
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{source} lists no programs")
    programs = tuple(_read_program(folder, row, source) for row in rows)
    pairs = zip(programs, rows, strict=True)
    provenance = {p.id: known for p, row in pairs if (known := _known(row, source)) is not None}
    try:
        tokens = int(manifest.get("tokens") or 0)
    except (TypeError, ValueError) as error:
        raise InputError(f"{source}: tokens must be a whole number") from error
    return Pool(programs, tokens, dict(manifest.get("origin") or {}), provenance)


def needs_validation(program: EnvProgram, provenance: Provenance | None) -> bool:
    """Whether a program must be validated before it is played, or its verdict can be believed.

    A verdict holds for exactly this text, this Python minor version and this battery.
    """
    from spade.envs.battery import BATTERY_VERSION

    verdict = provenance.verdict if provenance is not None else None
    return (
        provenance is None
        or verdict is None
        or not verdict.accepted
        or not verdict.program_id == program.id == content_id(program.code)
        or verdict.battery != BATTERY_VERSION
        or _minor(verdict.python) != _minor(platform.python_version())
    )


async def revalidate(pool: Pool, sandbox: Sandbox, cfg: ValidateConfig) -> tuple[Pool, dict[str, Verdict]]:
    """The programs of a pool that hold here and now, and the verdicts of those that do not, by id."""
    from spade.envs.validate import validate_many

    old = [p for p in pool.programs if needs_validation(p, pool.provenance.get(p.id))]
    verdicts = {v.program_id: v for v in await validate_many(old, sandbox, cfg)}
    refused = {i: v for i, v in verdicts.items() if not v.accepted}
    known = dict(pool.provenance)
    for program in old:
        before = known.get(program.id, Provenance())
        known[program.id] = Provenance(before.brief, verdicts[program.id], before.stats)
    kept = tuple(p for p in pool.programs if p.id not in refused)
    return Pool(kept, pool.tokens, pool.origin, {p.id: known[p.id] for p in kept}), refused


def _merged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A run's rows as manifest rows: programs in order, each with its latest statistics."""
    programs: dict[str, dict[str, Any]] = {}
    for row in rows:
        if isinstance(row.get("program"), dict):
            programs[str(row["program"].get("id"))] = dict(row["program"])
        elif row.get("id") in programs:
            programs[row["id"]]["stats"] = row.get("stats")
    return list(programs.values())


def _read_program(folder: Path, row: Any, source: Path) -> EnvProgram:
    if not isinstance(row, dict) or not isinstance(row.get("file"), str):
        raise InputError(f"{source} has a row without a file name")
    with open_inside(folder, row["file"]) as file:
        code = file.read().decode("utf-8", "surrogatepass")
    if content_id(code) != row.get("sha256"):
        raise InputError(f"{folder / row['file']} does not match its sha256 in the manifest; get it again")
    game_type = row.get("game_type", "multi_turn")
    if game_type not in GAME_TYPES:
        raise InputError(f"{source}: {row['file']} has the game type {str(game_type)[:40]!r}, which is none")
    return EnvProgram.of(
        code,
        skill=str(row.get("skill", "")),
        game_type=game_type,
        hint=row.get("hint"),
        step=int(row.get("step") or 0),
        source="pool",
    )


def _known(row: dict[str, Any], source: Path) -> Provenance | None:
    """The provenance a row holds; None when it holds none."""
    if not any(row.get(name) for name in ("brief", "verdict", "stats")):
        return None
    try:
        return Provenance(
            brief=dict(row.get("brief") or {}),
            verdict=from_json(Verdict, row["verdict"]) if row.get("verdict") else None,
            stats=from_json(PlayStats, row["stats"]) if row.get("stats") else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        where = f"{source}: the row of {row['file']} is damaged"
        raise InputError(f"{where} ({error}); get the pool again") from error
