"""Where the programs of the suite `games` come from: the shipped pool at its three levels, or any folder.

The shipped pool is fixed: `games_programs/manifest.json` names its version and the SHA-256 of every file. A
file holds one line `LEVEL = 1`; the levels 2 and 3 are the same text with that line changed, so that a level
is a program of its own with its own id. Nothing of the pool is ever shown to a Designer.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from spade.errors import InputError
from spade.files import read_json, write_json
from spade.types import EnvProgram, GameType, content_id

FOLDER: Final = Path(__file__).with_name("games_programs")
MANIFEST: Final = "manifest.json"
FORMAT: Final = 1

LEVELS: Final = (1, 2, 3)
"""Easy, middle, hard."""

TOOL_SKILLS: Final = (
    "API Orchestration",
    "Data Retrieval",
    "State Modification",
    "Error Recovery",
    "Tool Selection",
    "Multi-Step Workflows",
)
GAME_SKILLS: Final = (
    "Mathematical Reasoning",
    "Logical Deduction",
    "Spatial Reasoning",
    "Pattern Recognition",
    "Optimization",
    "Causal Inference",
)

_LEVEL_LINE = re.compile(r"^LEVEL = 1$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Game:
    """One program at one level. `name` is its cluster: the levels of a program are not independent tasks."""

    name: str
    part: str
    level: int
    """0 = the program has no levels."""
    program: EnvProgram


def slug(text: str) -> str:
    """A skill's name as a folder or a column: lower case, words joined by underscores."""
    return "_".join(re.findall(r"[a-z0-9]+", text.lower())) or "other"


def at_level(code: str, level: int) -> str:
    """The program text at a level. Raises InputError unless it has exactly one line `LEVEL = 1`."""
    text, lines = _LEVEL_LINE.subn(f"LEVEL = {level}", code)
    if lines != 1:
        raise InputError(f"a program of the games pool needs one line 'LEVEL = 1' and has {lines}")
    return text


# --- the shipped pool ----------------------------------------------------------------------------------


def shipped_games(folder: Path = FOLDER) -> list[Game]:
    """All programs of the pool at all levels, in the manifest's order.

    Raises InputError when a file is missing or not the one that the manifest lists.
    """
    manifest = read_json(folder / MANIFEST, "games manifest")
    games = []
    for row in manifest["programs"]:
        path = folder / row["file"]
        code = path.read_text(encoding="utf-8") if path.is_file() else ""
        if content_id(code) != row["sha256"]:
            raise InputError(f"{path} is not the file that {MANIFEST} lists; install SPADE again")
        part = f"{'tools' if row['skill'] in TOOL_SKILLS else 'games'}/{slug(row['skill'])}"
        for level in LEVELS:
            program = program_of(at_level(code, level), skill=row["skill"], source="games")
            games.append(Game(path.stem, part, level, program))
    return games


def write_manifest(folder: Path = FOLDER, version: int = 1) -> Path:
    """List the files of a pool, sorted by skill. A changed file needs a new `version`."""
    rows = []
    for skill in (*GAME_SKILLS, *TOOL_SKILLS):
        for path in sorted((folder / slug(skill)).glob("*.py")):
            code = path.read_text(encoding="utf-8")
            kind = game_type_of(code)
            name = path.relative_to(folder).as_posix()
            rows.append({"file": name, "skill": skill, "game_type": kind, "sha256": content_id(code)})
    path = folder / MANIFEST
    write_json(path, {"format": FORMAT, "version": version, "levels": list(LEVELS), "programs": rows})
    return path


# --- any folder ----------------------------------------------------------------------------------------


def folder_games(folder: Path) -> list[Game]:
    """The programs of a pool, a run's pool, or every `*.py` below a folder, each at one level.

    Raises InputError when there are none, or where a pool is damaged.
    """
    from spade.envs.pool import MANIFEST as POOL_MANIFEST
    from spade.envs.pool import ROWS, read_pool

    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}")
    if (folder / POOL_MANIFEST).is_file() or (folder / ROWS).is_file():
        named = [(p.id[:12], p) for p in read_pool(folder).programs]
    else:
        named = _loose_programs(folder)
    skills = Counter(slug(program.skill) for _, program in named)
    # A part of one program would have no standard error, nor would the score.
    apart = len(skills) > 1 and min(skills.values()) > 1
    return [Game(name, f"pool/{slug(p.skill)}" if apart else "pool", 0, p) for name, p in named]


def _loose_programs(folder: Path) -> list[tuple[str, EnvProgram]]:
    """Names and programs of the `*.py` below a folder; the folder a file lies in stands for its skill."""
    from spade.envs.reading import program_files, read_program

    found = []
    for path in program_files([str(folder)]):
        inside = path.relative_to(folder)
        skill = inside.parent.name if len(inside.parts) > 1 else ""
        program = replace(read_program(path), skill=skill)
        program = replace(program, game_type=game_type_of(program.code))
        found.append((inside.with_suffix("").as_posix(), program))
    return found


def program_of(code: str, **fields: Any) -> EnvProgram:
    """The record of a program text, its type read from the text."""
    return EnvProgram.of(code, game_type=game_type_of(code), **fields)


def game_type_of(code: str) -> GameType:
    """What a program says it is, without running it: a subclass of `ToolEnv`, or its `game_type`."""
    try:
        classes = [n for n in ast.parse(code).body if isinstance(n, ast.ClassDef) and n.name.endswith("Env")]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "multi_turn"  # it will not load, and the episode says so
    for node in reversed(classes):
        if any(isinstance(base, ast.Name) and base.id == "ToolEnv" for base in node.bases):
            return "tool_use"
        said = [_assigned(statement, "game_type") for statement in node.body]
        for value in said:
            if value in ("single_turn", "multi_turn", "tool_use"):
                return value  # type: ignore[return-value]
    return "multi_turn"


def _assigned(statement: ast.stmt, name: str) -> object:
    """The constant that a class body assigns to `name`, or None."""
    targets: Sequence[ast.expr] = ()
    value: ast.expr | None = None
    if isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    elif isinstance(statement, ast.AnnAssign):
        targets, value = [statement.target], statement.value
    named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
    return value.value if named and isinstance(value, ast.Constant) else None
