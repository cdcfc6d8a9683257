"""Did a training run see a program of the games pool? Twins by code, and lookalikes by behaviour.

By code two programs are twins when their canonical texts (names, comments, layout and annotations aside)
share most of their token runs. By behaviour they are when they look and are played the same
(`spade.envs.duplicates`); that needs a sandbox and about thirty milliseconds a program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spade.envs.fingerprint import NoveltyIndex, shingles
from spade.errors import InputError
from spade.files import read_json
from spade.runs import RECORD, read_record
from spade.types import EnvProgram
from spade_evals.suites.games_pool import program_of

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox

TWIN: Final = 0.5
"""Share of equal token runs (Jaccard index) from which on two texts are the same program. Two levels of one
program of the pool share 0.97 and more, two programs of it 0.06 at most."""

LOOKALIKE: Final = 0.9
"""Similarity of two sketches from which on two programs are the same game."""

SHOWN: Final = 3
"""Pairs named in a warning."""


def run_programs(run: Path) -> dict[str, EnvProgram]:
    """Every program that a run made, was given or remembers, by id: its pool, what it refused, the fixed pool
    of its config, and the memory in its checkpoints."""
    texts = [path.read_text(encoding="utf-8") for path in _program_files(run)]
    for state in sorted(run.glob("checkpoints/*/state.json")):
        texts += list(_codes(read_json(state, "checkpoint state")))
    return {program.id: program for program in map(program_of, texts)}


def _program_files(run: Path) -> list[Path]:
    folders = [run / "pool", run / "rejected"]
    if (run / RECORD).is_file():
        train = read_record(run).config.get("train") or {}
        folders += [Path(train["pool"])] if isinstance(train, dict) and train.get("pool") else []
    return [path for folder in folders if folder.is_dir() for path in sorted(folder.rglob("*.py"))]


def _codes(value: Any) -> Iterator[str]:
    """The program texts anywhere in a state: what stands under a key `code`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "code" and isinstance(inner, str):
                yield inner
            else:
                yield from _codes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _codes(inner)


def twins_by_code(
    programs: Sequence[EnvProgram], held: Sequence[EnvProgram], threshold: float = TWIN
) -> list[tuple[str, str, float]]:
    """(program id, held-out id, similarity) of every program that is nearly a held-out one, worst first."""
    known = {program.id: shingles(program.code) for program in held}
    places: dict[int, list[str]] = {}
    for name, runs in known.items():
        for run in runs:
            places.setdefault(run, []).append(name)
    found = []
    for program in programs:
        mine = shingles(program.code)
        common = Counter(name for run in mine for name in places.get(run, ()))
        for name, count in common.most_common(1):
            likeness = count / (len(mine) + len(known[name]) - count)
            if likeness >= threshold:
                found.append((program.id, name, likeness))
    return sorted(found, key=lambda row: -row[2])


async def twins_by_behaviour(
    programs: Sequence[EnvProgram],
    held: Sequence[EnvProgram],
    sandbox: Sandbox,
    threshold: float = LOOKALIKE,
) -> list[tuple[str, str]]:
    """(program id, held-out id) of every program that looks and is played like a held-out one.

    A program that breaks while it is sketched looks like nothing.
    """
    index = NoveltyIndex()
    for program, sketch in zip(held, await sketches(held, sandbox), strict=True):
        index.add(program, sketch)
    pairs = zip(programs, await sketches(programs, sandbox), strict=True)
    found = ((p.id, index.lookalike(sketch, threshold, besides=p.id)) for p, sketch in pairs if sketch)
    return [(mine, other) for mine, other in found if other is not None]


async def sketches(programs: Sequence[EnvProgram], sandbox: Sandbox) -> list[str]:
    """The sketch of each program; empty for one that breaks."""
    from spade.config import ValidateConfig
    from spade.envs.battery import STAGES
    from spade.envs.validate import validate_many

    stages: dict[str, bool | dict[str, Any]] = dict.fromkeys(STAGES, False)
    stages["near_duplicate"] = {"in_small_worlds": True}
    cfg = ValidateConfig(stages=stages)
    return [verdict.sketch for verdict in await validate_many(programs, sandbox, cfg)]


def code_twins(run: Path, held: Sequence[EnvProgram]) -> list[str]:
    """One sentence on the code of a run's programs; a warning that names the pairs where there are twins."""
    try:
        programs = run_programs(run)
    except (InputError, OSError, UnicodeDecodeError) as error:
        return [f"WARNING: the programs of {run} could not be compared with the held-out ones ({error})"]
    if not programs:
        return []
    found = twins_by_code(list(programs.values()), held)
    if not found:
        return [f"none of the {len(programs)} programs of {run} is one of the held-out programs"]
    pairs = ", ".join(f"{mine[:12]} and {other[:12]}" for mine, other, _ in found[:SHOWN])
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return [
        f"WARNING: {len(found)} programs of {run} are held-out programs or nearly so ({pairs}{more}); this "
        "score says nothing of unseen games"
    ]
