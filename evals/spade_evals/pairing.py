"""Which runs form a row, and which of them are compared with which: by recipe, training seed and item id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from spade_evals import stats
from spade_evals.results import EvalRun

NAMED = 3
"""Items that a note names."""

Differences = dict[str, tuple[np.ndarray[Any, Any], list[str]]]
"""By part: one difference per item, and the items' clusters."""


def group(runs: Sequence[EvalRun]) -> tuple[dict[str, list[EvalRun]], list[str]]:
    """Runs by row label, and what had to be noted while grouping them."""
    groups: dict[str, list[EvalRun]] = {}
    problems: list[str] = []
    for run in runs:
        label, number = run.label, 1
        while label in groups and groups[label][0].origin.recipe != run.origin.recipe:
            number += 1
            label = f"{run.label} ({number})"
        if label != run.label and label not in groups:
            problems.append(f"'{run.label}' stands for different configs; {run.path.parent} is '{label}'")
        row = groups.setdefault(label, [])
        same = [other for other in row if other.seed == run.seed]
        if same:
            row.remove(same[0])
            problems.append(f"'{label}' seed {run.seed} was given twice; {run.path} is used")
        row.append(run)
    for label, row in groups.items():
        unfinished = [run for run in row if not run.complete]
        if unfinished:
            problems.append(f"'{label}' misses items lost to infrastructure faults; run spade eval again")
    return groups, problems


def columns(runs: Sequence[EvalRun]) -> dict[str, dict[str, float]]:
    """The columns of runs together, as `stats.columns_of` their parts."""
    return stats.columns_of([item.part for run in runs for item in run.items.values()])


def unpaired(name: str, runs: Sequence[EvalRun], base: Sequence[EvalRun]) -> list[str]:
    """A note on the items that only some of the runs have a score for; none when all have all."""
    held = [set(run.items) for run in (*runs, *base)]
    everything = held[0].union(*held[1:])
    missing = sorted(everything - held[0].intersection(*held[1:]))
    if not missing:
        return []
    first = ", ".join(missing[:NAMED]) + (", ..." if len(missing) > NAMED else "")
    return [
        f"'{name}': {len(missing)} of {len(everything)} items lack a score on one side and are left out of "
        f"the differences ({first})"
    ]


def run_means(run: EvalRun) -> dict[str, tuple[float, float, int]]:
    """Mean, clustered standard error and n of every column of one run."""
    parts: dict[str, tuple[list[float], list[str]]] = {}
    for _, item in sorted(run.items.items()):  # file order must not reach the last digit
        values, clusters = parts.setdefault(item.part, ([], []))
        values.append(item.value)
        clusters.append(item.cluster)
    return stats.column_means(parts)


def pairings(
    runs: Sequence[EvalRun], base: Sequence[EvalRun], problems: list[str], name: str
) -> list[Differences]:
    """One set of item differences per training seed: same seeds are paired, an untrained model with each run.

    Seeds on one side only are left out as long as two sides share some; what is left out goes to `problems`.
    """
    if len(runs) == 1 and runs[0].seed is None:
        return [paired(runs[0], [b]) for b in base]
    if len(base) == 1:
        return [paired(run, base) for run in runs]
    by_seed = {b.seed: b for b in base}
    matched = [(run, by_seed[run.seed]) for run in runs if run.seed in by_seed]
    if not matched:
        problems.append(f"'{name}' shares no training seed with the reference: its spread is not included")
        return [paired(run, base) for run in runs]
    if len(matched) < max(len(runs), len(base)):
        problems.append(f"'{name}': only the {len(matched)} training seeds of both sides are compared")
    return [paired(run, [other]) for run, other in matched]


def paired(run: EvalRun, base: Sequence[EvalRun]) -> Differences:
    """Per-item differences of `run` minus the mean of `base`; inner join on item ids, in their order."""
    shared = sorted(set(run.items).intersection(*(b.items for b in base)))
    parts: dict[str, tuple[list[float], list[str]]] = {}
    for item_id in shared:
        own = run.items[item_id]
        other = sum(b.items[item_id].value for b in base) / len(base)
        values, clusters = parts.setdefault(own.part, ([], []))
        values.append(own.value - other)
        clusters.append(own.cluster)
    return {part: (np.asarray(values), clusters) for part, (values, clusters) in parts.items()}


def item_differences(runs: Sequence[EvalRun], base: Sequence[EvalRun]) -> dict[str, tuple[str, float]]:
    """Part and mean difference (`runs` minus `base`) of every item that all of them have, by item id."""
    everyone = [*runs, *base]
    shared = sorted(set(everyone[0].items).intersection(*(run.items for run in everyone[1:])))

    def mean(side: Sequence[EvalRun], item_id: str) -> float:
        return sum(run.items[item_id].value for run in side) / len(side)

    return {i: (runs[0].items[i].part, mean(runs, i) - mean(base, i)) for i in shared}
