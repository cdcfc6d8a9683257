"""What an evaluation on games says: return, solve rate, turns and invalid actions, by skill and by level."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from spade.types import ItemResult, Scored
from spade_evals import stats
from spade_evals.task_report import SuiteReport

MANY_CUT: Final = 0.2
"""Share of episodes ended by a token limit from which on the report says what to do about it."""


@dataclass(frozen=True, slots=True)
class GameScore:
    """A group of episodes. Rates are over scored episodes; the error is clustered by program."""

    programs: int
    episodes: int
    mean: float
    stderr: float
    solved: float
    turns: float
    """Turns per episode."""
    invalid: float
    """Share of all actions that the program could not use."""
    cut: float
    """Share of episodes that a limit on tokens ended."""


@dataclass(frozen=True, slots=True)
class GamesReport(SuiteReport):
    """A suite report with the rows of a table."""

    skills: tuple[tuple[str, GameScore], ...] = ()
    levels: tuple[tuple[str, GameScore], ...] = ()
    cells: tuple[tuple[str, GameScore], ...] = ()
    """Skill and level together, as `games/optimization level 2`."""

    def __str__(self) -> str:
        return to_text(self)

    @property
    def details(self) -> dict[str, Any]:
        """The same numbers for the result file."""
        groups = {"skills": self.skills, "levels": self.levels, "cells": self.cells}
        return {key: {name: asdict(score) for name, score in rows} for key, rows in groups.items()}


def report_of(base: SuiteReport, rows: Sequence[ItemResult], notes: Sequence[str]) -> GamesReport:
    """The report on scored `rows`; `notes` are printed below the table."""
    scored = [row for row in rows if isinstance(row.outcome, Scored)]
    levels = sorted({_level(row) for row in scored if _level(row)})
    whole = score_of(scored)
    if whole.cut > MANY_CUT:
        notes = [*notes, _cut_note(whole)]
    return GamesReport(
        result=base.result,
        complete=base.complete,
        folder=base.folder,
        notes=(*base.notes, *notes),
        skills=_rows(scored),
        levels=tuple((f"level {n}", score_of([row for row in scored if _level(row) == n])) for n in levels),
        cells=_groups([row for row in scored if _level(row)], lambda r: f"{r.part} level {_level(r)}"),
    )


def _rows(scored: Sequence[ItemResult]) -> tuple[tuple[str, GameScore], ...]:
    """By part, or by program where all are of one part; then by the first word of the part."""
    parts = len({row.part for row in scored})
    return (
        *_groups(scored, lambda r: r.part if parts > 1 else r.cluster),
        *_groups(scored, lambda r: r.part.split("/")[0]),
    )


def _cut_note(whole: GameScore) -> str:
    return (
        f"{100 * whole.cut:.0f} % of the episodes ended because a reply was cut or the context was full: "
        "raise play.max_tokens (the same for all checkpoints), for example play.max_tokens=2048"
    )


def _level(row: ItemResult) -> int:
    return int(row.facts.get("level", 0))


def _groups(
    rows: Sequence[ItemResult], name_of: Callable[[ItemResult], str]
) -> tuple[tuple[str, GameScore], ...]:
    """Scores by name, in the order in which names appear."""
    groups: dict[str, list[ItemResult]] = {}
    for row in rows:
        groups.setdefault(name_of(row), []).append(row)
    return tuple((name, score_of(own)) for name, own in groups.items())


def score_of(rows: Sequence[ItemResult]) -> GameScore:
    """Summarise scored episodes; everything but the counts is NaN without any."""
    values = [row.outcome.value for row in rows if isinstance(row.outcome, Scored)]
    mean, stderr, count = stats.clustered_mean(values, [row.cluster for row in rows])
    turns = sum(row.facts.get("turns", 0.0) for row in rows)
    invalid = sum(row.facts.get("invalid", 0.0) for row in rows)
    solved = sum(row.outcome.solved for row in rows if isinstance(row.outcome, Scored))
    return GameScore(
        programs=len({row.cluster for row in rows}),
        episodes=count,
        mean=mean,
        stderr=stderr,
        solved=_rate(solved, count),
        turns=_rate(turns, count),
        invalid=_rate(invalid, turns),
        cut=_rate(sum(row.facts.get("cut", 0.0) for row in rows), count),
    )


def _rate(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


# --- text ----------------------------------------------------------------------------------------------


def to_text(report: GamesReport) -> str:
    """The table, the score, what went wrong, and notes."""
    from tabulate import tabulate

    result = report.result
    head = ("part", "programs", "episodes", "return", "solved", "turns", "invalid", "cut")
    rows = [_row(name, score) for name, score in (*report.skills, *report.levels)]
    lines = [f"{result.suite} on {result.checkpoint}"]
    lines.append(tabulate(rows, headers=head, tablefmt="plain", disable_numparse=True))
    mean, stderr, count = result.score
    lines.append(f"score {_plus_minus(mean, stderr)} (n = {count})")
    faults = ", ".join(f"{kind} {n}" for kind, n in result.faults.items() if n)
    lines += [f"faults: {faults}"] if faults else []
    if not report.complete:
        lines.append("episodes were lost to the machinery; run the command again to play them")
    return "\n".join([*lines, *report.notes, f"samples: {report.folder}"])


def _row(name: str, score: GameScore) -> tuple[str, ...]:
    return (
        name,
        str(score.programs),
        str(score.episodes),
        _plus_minus(score.mean, score.stderr),
        _percent(score.solved),
        "-" if math.isnan(score.turns) else f"{score.turns:.1f}",
        _percent(score.invalid),
        _percent(score.cut),
    )


def _plus_minus(mean: float, stderr: float) -> str:
    if math.isnan(mean):
        return "undefined"
    return f"{mean:.3f}" + ("" if math.isnan(stderr) else f" ± {stderr:.3f}")


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.1f} %"
