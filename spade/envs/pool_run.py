"""The pool of a run that goes on: every design on disk as it is made, the refused ones apart with the reason.

Rows carry the step that wrote them, so that a run that is taken up again drops what it is going to redo
(`ROW_FILES` belong to the files that are cut). Program files have content hashes for names and are left
alone.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spade.envs.pool import ROWS, PlayStats, Provenance, brief_note, program_row, save_program
from spade.types import Design, Group, Regret, Scored

if TYPE_CHECKING:
    from spade.runs import RunFolder

ADMITTED, REJECTED = "pool", "rejected"
ROW_FILES = (f"{ADMITTED}/{ROWS}", f"{REJECTED}/{ROWS}")
"""Files with one row per program (or its statistics), beside the programs."""


def record_designs(folder: RunFolder, step: int, designs: Sequence[Design], hints: Mapping[str, str]) -> None:
    """Write the programs of one design step, accepted and refused; `hints` by program id.

    `step` counts from 1, as in all files of a run. Replies without a program are in `designs.jsonl` only.
    """
    rows: dict[str, list[dict[str, object]]] = {ADMITTED: [], REJECTED: []}
    for design in designs:
        program, verdict = design.program, design.verdict
        if program is None or verdict is None:
            continue
        place = ADMITTED if verdict.accepted else REJECTED
        kept = dataclasses.replace(program, hint=hints.get(program.id)) if verdict.accepted else program
        path = save_program(folder.path_of(place), kept)
        known = Provenance(brief_note(design.brief), verdict)
        row: dict[str, object] = {"step": step, "program": program_row(kept, path.name, known)}
        if (failed := verdict.failed) is not None:
            row |= {"reason": failed.code, "detail": failed.detail}
        rows[place].append(row)
    for place, found in rows.items():
        if found:
            folder.append_many(f"{place}/{ROWS}", found)


def record_plays(folder: RunFolder, step: int, stats: Mapping[str, PlayStats]) -> None:
    """Note what the plays of admitted programs showed, by program id; the latest row counts."""
    if stats:
        rows = [{"step": step, "id": i, "stats": dataclasses.asdict(s)} for i, s in stats.items()]
        folder.append_many(f"{ADMITTED}/{ROWS}", rows)


def play_stats(group: Group, regret: Regret | None) -> PlayStats:
    """What the plain plays of a group showed, with the regret of its pairs; faults are left out."""
    values = [e.outcome.value for e in group.plain if isinstance(e.outcome, Scored)]
    turns = [float(len(e.turns)) for e in group.plain if isinstance(e.outcome, Scored)]
    return PlayStats(
        plays=len(values),
        mean_return=statistics.fmean(values) if values else None,
        return_stderr=statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None,
        regret=None if regret is None else regret.mean,
        regret_stderr=None if regret is None or not math.isfinite(regret.stderr) else regret.stderr,
        turns=statistics.fmean(turns) if turns else None,
    )
