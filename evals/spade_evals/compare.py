"""Compare evaluated checkpoints on the same items, each against a reference.

Runs of one recipe with different training seeds form one row. A row of one run gets the paired item
bootstrap: it speaks of this checkpoint on these items. A row of several gets a t interval over per-seed
differences: it speaks of the recipe, and below five seeds it is called descriptive only. Results under
another protocol are shown, marked and not compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from spade.errors import InputError
from spade.registry import suggestion
from spade.types import Comparison
from spade_evals import stats
from spade_evals.comparison import CompareList, CompareReport, ItemChange, Row, Test, unequal_budgets
from spade_evals.pairing import Differences, columns, group, item_differences, pairings, run_means, unpaired
from spade_evals.published import published
from spade_evals.results import EvalRun, expand, load, not_evaluated, suites_of

ENOUGH_SEEDS = 5
ALPHA = 0.05

Columns = Mapping[str, Mapping[str, float]]
"""Column name -> weight of each leaf part, see `stats.columns_of`."""


def compare_suites(
    paths: Sequence[Path | str],
    reference: str | None = None,
    out: Path | str | None = None,
    *,
    suite: str | None = None,
    paper: bool = False,
) -> CompareReport | CompareList:
    """Compare on every suite of which two runs or more have results, or on `suite` alone.

    A folder of runs stands for its runs. With several suites, the files of each go to a folder of its name
    in `out`. Raises InputError as `compare_runs` does.
    """
    given = {str(path) for path in paths}
    notes = not_evaluated(paths)
    paths = expand(paths)
    held = [suites_of(path) for path in paths]
    common = sorted(name for name in set().union(*held) if sum(name in own for own in held) > 1)
    if suite is None and len(common) < 2:
        only = common[0] if common else None
        return compare_runs(paths, reference, out, suite=only, paper=paper, notes=notes)
    if suite is not None and not any(suite in own for own in held):
        everything = set().union(*held)
        raise InputError(f"no run has results of the suite '{suite}'{suggestion(suite, everything)}")
    reports = []
    for name in common if suite is None else [suite]:
        without = [path for path, own in zip(paths, held, strict=True) if name not in own]
        if suite is not None:  # a run that was named must have it, which `compare_runs` says
            without = [path for path in without if str(path) not in given]
        rest = ", ".join(Path(path).name for path in without)
        more = [f"not evaluated on {name}, hence left out: {rest}"] if rest else []
        own = [path for path in paths if path not in without]
        folder = Path(out) / name if out is not None and suite is None else out
        found = compare_runs(own, reference, folder, suite=name, paper=paper, notes=[*notes, *more])
        reports.append(found)
    return reports[0] if suite is not None else CompareList(tuple(reports))


def compare_runs(
    paths: Sequence[Path | str],
    reference: str | None = None,
    out: Path | str | None = None,
    *,
    suite: str | None = None,
    paper: bool = False,
    notes: Sequence[str] = (),
) -> CompareReport:
    """Compare the results behind `paths` (run folders, evaluation folders, files, or `NAME=path`).

    `reference` names the row the others are compared with; by default the first. `paper` adds published rows
    of the suite, marked as such. `notes` stand below the tables with what is noted here. With `out`, tables,
    `report.md` and the plots are written there. Raises InputError for a path without an evaluation or an
    unknown reference.
    """
    runs = [load(path, suite) for path in paths]
    if not runs:
        raise InputError("nothing to compare; name at least one evaluated run")
    suites = sorted({run.suite for run in runs})
    if len(suites) > 1:
        raise InputError(f"the runs were evaluated on different suites ({', '.join(suites)}); compare one")
    groups, problems = group(runs)
    label = reference or next(iter(groups))
    if label not in groups:
        raise InputError(f"no run is called '{label}'{suggestion(label, groups)}")
    report = _report(groups, label, [*problems, *notes])
    if paper:
        report = replace(report, published=tuple(published(report.suite)))
    if out is None:
        return report
    from spade_evals.compare_files import write_outputs

    return write_outputs(report, runs, Path(out))


def _report(groups: Mapping[str, Sequence[EvalRun]], label: str, problems: list[str]) -> CompareReport:
    base = groups[label]
    alike = [run for runs in groups.values() for run in runs if run.fingerprint == base[0].fingerprint]
    wanted = columns(alike)
    rows: list[Row] = []
    comparisons: list[Comparison] = []
    for name, runs in groups.items():
        row, found = _row(name, runs, label, base, wanted, problems)
        rows.append(row)
        comparisons += found
    problems += unequal_budgets(rows)
    if all(run.seed is not None for runs in groups.values() for run in runs):
        problems.append("no untrained model is among the runs; evaluate one to see what was learned")
    return CompareReport(
        base[0].suite,
        label,
        base[0].fingerprint,
        tuple(wanted),
        tuple(rows),
        tuple(comparisons),
        tuple(problems),
    )


def _row(
    name: str,
    runs: Sequence[EvalRun],
    label: str,
    base: Sequence[EvalRun],
    wanted: Columns,
    problems: list[str],
) -> tuple[Row, list[Comparison]]:
    """One row and its comparisons with the reference `label`, unless it is that or was measured otherwise."""
    strange = [run for run in runs if run.fingerprint != base[0].fingerprint]
    for run in strange:
        problems.append(f"'{name}' was evaluated differently and is not compared: {_why(run, base[0])}")
    cells = row_cells(runs, wanted)
    found: list[Comparison] = []
    tests: dict[str, Test] = {}
    changed: list[ItemChange] = []
    if name != label and not strange:
        found, tests = contrast(name, label, runs, base, cells, wanted, problems)
        changed = changes(runs, base)
        problems += unpaired(name, runs, base)
    row = Row(
        label=name,
        seeds=tuple(sorted(run.seed for run in runs if run.seed is not None)),
        runs=len(runs),
        comparable=not strange,
        cells=cells,
        faults=sum(run.faults for run in runs),
        ledger=_mean_ledger(runs),
        tests=tests,
        gained=tuple(c for c in changed if c.difference > 0),
        lost=tuple(c for c in changed if c.difference < 0),
    )
    return row, found


def changes(runs: Sequence[EvalRun], base: Sequence[EvalRun]) -> list[ItemChange]:
    """Items whose value differs between two sides, the largest change first."""
    found = [ItemChange(i, part, d) for i, (part, d) in item_differences(runs, base).items() if d]
    return sorted(found, key=lambda change: (-abs(change.difference), change.item_id))


def _why(run: EvalRun, base: EvalRun) -> str:
    keys = [key for key in base.protocol if run.protocol.get(key) != base.protocol[key]]
    return (
        ", ".join(f"{k} {run.protocol.get(k)} against {base.protocol[k]}" for k in keys) or "protocol differs"
    )


def row_cells(runs: Sequence[EvalRun], wanted: Columns) -> dict[str, tuple[float, float]]:
    """Score and standard error by column: over programs for one run, over training seeds for several.

    NaN where a run lacks a part that the column is the mean of: what is missing is not averaged as absent.
    """
    means = [(run_means(run), columns([run])) for run in runs]
    cells: dict[str, tuple[float, float]] = {}
    for column, weights in wanted.items():
        values = [m[column][:2] if own.get(column) == weights else (math.nan, math.nan) for m, own in means]
        if len(values) == 1:
            cells[column] = values[0]
        else:
            interval = stats.t_interval([mean for mean, _ in values])
            cells[column] = (interval.mean, interval.stderr)
    return cells


def contrast(
    name: str,
    reference: str,
    runs: Sequence[EvalRun],
    base: Sequence[EvalRun],
    cells: Mapping[str, tuple[float, float]],
    wanted: Columns,
    problems: list[str],
) -> tuple[list[Comparison], dict[str, Test]]:
    """All columns of one row against the reference; one with a part without common items is left out."""
    pairs = pairings(runs, base, problems, name)
    common = [stats.columns_of(list(p)) for p in pairs]
    names = [c for c, weights in wanted.items() if all(own.get(c) == weights for own in common)]
    if not names:
        return [], {}
    if len(pairs) == 1:
        intervals = stats.paired_bootstrap({part: diff for part, (diff, _) in pairs[0].items()})
    else:
        per_seed = [stats.column_means(p) for p in pairs]
        intervals = {c: stats.t_interval([m[c][0] for m in per_seed]) for c in names}
    binary = len(pairs) == 1 and _binary(runs[0]) and _binary(base[0])
    tests = _tests(names, intervals, pairs, binary)
    spread = stats.column_means(pairs[0])
    out = []
    for column in names:
        interval = intervals[column]
        unsure = len(pairs) == 1 and abs(interval.mean) < 1.96 * spread[column][1]
        words = in_words(interval, reference, len(pairs), tests[column], unsure)
        score, stderr = cells[column]
        out.append(
            Comparison(
                name, reference, column, score, stderr,
                interval.mean, interval.low, interval.high, interval.n, words,
            )
        )  # fmt: skip
    return out, tests


def _binary(run: EvalRun) -> bool:
    return run.single and all(item.value in (0.0, 1.0) for item in run.items.values())


def _tests(
    names: Sequence[str],
    intervals: Mapping[str, stats.Interval],
    pairs: Sequence[Differences],
    binary: bool,
) -> dict[str, Test]:
    """A test per column, Holm-adjusted over the columns of the row."""
    raw: list[tuple[str, float, int, int]] = []
    weights = stats.columns_of(list(pairs[0]))
    for column in names:
        interval = intervals[column]
        gained = lost = 0
        if len(pairs) > 1:
            p = stats.t_p_value(interval) if len(pairs) >= ENOUGH_SEEDS else math.nan
            raw.append(("t over seeds", p, 0, 0))
            continue
        diffs = np.concatenate([pairs[0][part][0] for part in weights[column]])
        gained, lost = int((diffs > 0).sum()), int((diffs < 0).sum())
        if binary:
            raw.append(("McNemar", stats.mcnemar_exact(gained, lost), gained, lost))
        else:
            raw.append(("bootstrap", stats.normal_p_value(interval), gained, lost))
    adjusted = stats.holm([p for _, p, _, _ in raw])
    return {
        column: Test(kind, p, holm, gained, lost, _detectable(intervals[column], len(pairs)))
        for column, (kind, p, gained, lost), holm in zip(names, raw, adjusted, strict=True)
    }


def _detectable(interval: stats.Interval, runs: int) -> float:
    if runs == 1:
        return stats.detectable_effect(interval.stderr)
    return stats.detectable_effect(interval.stderr, df=runs - 1) if runs >= ENOUGH_SEEDS else math.nan


def in_words(interval: stats.Interval, reference: str, runs: int, test: Test, unsure: bool) -> str:
    """What the numbers allow one to say."""
    if 1 < runs < ENOUGH_SEEDS:
        return f"descriptive only ({runs} seeds)"
    over = f" over {runs} training seeds" if runs > 1 else ""
    if not interval.excludes_zero:
        return f"no difference from {reference} shown{over}"
    side = "higher" if interval.mean > 0 else "lower"
    weak = ", but not after the correction for several columns" if test.p_holm >= ALPHA else ""
    if runs > 1:
        return f"{side} than {reference}{over}{weak}"
    scope = "on these programs, not shown for new ones" if unsure else "on this suite"
    return f"{side} than {reference} {scope}, for this one checkpoint{weak}"


def _mean_ledger(runs: Sequence[EvalRun]) -> dict[str, float]:
    keys = {key for run in runs for key in run.origin.ledger}
    return {key: float(np.mean([run.origin.ledger.get(key, 0.0) for run in runs])) for key in sorted(keys)}
