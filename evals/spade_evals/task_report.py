"""What a command reports about a suite of tasks, and how it reads on a terminal."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spade.types import SuiteResult
from spade_evals.question import GradeVerdict
from spade_evals.scores import Mean, TaskScore, powers

STRANGE = (GradeVerdict.GRADER_TIMEOUT.value, GradeVerdict.UNGRADABLE.value, GradeVerdict.REFUSED.value)
"""Verdicts worth a line of their own: many of them speak of the grader more than of the model."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What became of one task."""

    name: str
    state: str
    """`done`, `partial` or `not run`."""
    reason: str = ""
    command: str = ""
    """For `not run`: what gets the data."""
    score: TaskScore | None = None
    changed: tuple[str, ...] = ()
    """Data files that are not the pinned ones."""


@dataclass(frozen=True, slots=True)
class SuiteReport:
    """One suite on one checkpoint; `str()` is the terminal text, `spade.files.plain` the JSON."""

    result: SuiteResult
    tasks: tuple[TaskReport, ...] = ()
    complete: bool = True
    """No sample is missing."""
    absent_allowed: bool = False
    folder: str = ""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the command succeeded."""
        absent = any(task.state == "not run" for task in self.tasks)
        return self.complete and (self.absent_allowed or not absent)

    def __str__(self) -> str:
        return to_text(self)


@dataclass(frozen=True, slots=True)
class ListReport:
    """Several suites on one checkpoint. `absent` are suites that this installation does not have."""

    suites: tuple[SuiteReport, ...]
    absent: tuple[str, ...] = ()
    absent_allowed: bool = False

    @property
    def ok(self) -> bool:
        """Whether the command succeeded."""
        return all(report.ok for report in self.suites) and (self.absent_allowed or not self.absent)

    def __str__(self) -> str:
        rows = [
            f"{name}: not run: no suite of this name is installed (spade list suites)" for name in self.absent
        ]
        return "\n\n".join([*map(str, self.suites), *(["\n".join(rows)] if rows else [])])


def to_text(report: SuiteReport) -> str:
    """A row per task, then what a reader must not overlook."""
    from tabulate import tabulate

    lines = [f"{report.result.suite} on {report.result.checkpoint}"]
    scored = [(task.name, task.score) for task in report.tasks if task.score is not None]
    if scored:
        head = ("task", "mean", "95 %", "items", "n", "no answer", "cut", "tokens", "s")
        lines.append(tabulate([_row(*pair) for pair in scored], headers=head, tablefmt="plain"))
    lines += [line for name, score in scored for line in _remarks(name, score)]
    for task in report.tasks:
        if task.state == "not run":
            lines.append(f"{task.name}: not run: {task.reason}; get it with: {task.command}")
        elif task.state == "partial":
            missing = task.score.missing if task.score else 0
            why = f" ({task.reason})" if task.reason else ""
            lines.append(f"{task.name}: partial, {missing} samples missing{why}; run the command again")
        if task.changed:
            lines.append(f"{task.name}: not the pinned data: {', '.join(task.changed)}")
    lines += [_score_line(report), *report.notes]
    return "\n".join([*lines, f"samples: {report.folder}"])


def _score_line(report: SuiteReport) -> str:
    mean, stderr, count = report.result.score
    absent = sum(task.state == "not run" for task in report.tasks)
    if absent and not report.absent_allowed:
        return f"score undefined: {absent} of {len(report.tasks)} tasks did not run (see --allow-missing)"
    over = f", mean over the {len(report.tasks) - absent} tasks that ran" if absent else ""
    return f"score {_plus_minus(mean, stderr)} (n = {count}{over})"


def _row(name: str, score: TaskScore) -> tuple[str, ...]:
    whole = score.all
    return (
        name,
        _plus_minus(whole.mean, whole.stderr),
        f"{_number(whole.low)} to {_number(whole.high)}",
        f"{whole.items:,}",
        str(score.n),
        _percent(score.no_answer),
        _percent(score.truncated),
        f"{score.tokens:,}",
        f"{score.seconds:.0f}",
    )


def _remarks(name: str, score: TaskScore) -> list[str]:
    """pass@k, further numbers, verdicts other than right and wrong, faults, and the score without defective
    items."""
    said = []
    if score.n > 1 and score.pass_at:
        ks = powers(score.pass_at)
        said.append(" ".join(f"pass@{k} {score.pass_at[k]:.3f}" for k in ks))
    said += [f"{part} {_plus_minus(mean.mean, mean.stderr)}" for part, mean in score.parts.items()]
    rest = {k: v for k, v in score.verdicts.items() if k in STRANGE}
    said += [f"{kind.replace('_', ' ')} {count}" for kind, count in rest.items()]
    said += [f"faults of kind {kind}: {count}" for kind, count in score.faults.items()]
    if _differs(score.all, score.sound):
        without = score.all.items - score.sound.items
        said.append(f"without {without} defective items {_plus_minus(score.sound.mean, score.sound.stderr)}")
    return [f"{name}: {'; '.join(said)}"] if said else []


def _differs(whole: Mean, sound: Mean) -> bool:
    return whole.items != sound.items


def _plus_minus(mean: float, stderr: float) -> str:
    if math.isnan(mean):
        return "undefined"
    return f"{mean:.3f}" + ("" if math.isnan(stderr) else f" ± {stderr:.3f}")


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.1f} %"
