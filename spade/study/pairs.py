"""Paired comparisons of the arms of an experiment: a seed is the same pool and random numbers in all arms.

Effect sizes with bootstrap intervals over trunks and seeds come first; beside them stands an exact McNemar
test of the successes, adjusted by Holm within the experiment. Few seeds cannot reach a small p: with five
pairs it is at least 0.06.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from spade.study.stats import Interval, bootstrap, holm, mcnemar, spearman
from spade.study.tables import Table, levels
from spade.study.verdicts import Run, chosen

AXIS = {
    "E3": "reward", "E4": "reward", "E8": "reward", "E9": "algorithm", "E10": "size", "E5": "prompts",
    "R1": "reward",
}  # fmt: skip
"""Factor whose levels are compared with its first one; of other experiments the first factor."""


def comparisons(experiment: str, title: str, runs: Sequence[Run]) -> list[Table]:
    """The table of paired comparisons; none where no two arms share a seed."""
    axis = AXIS.get(experiment, next(iter(runs[0].labels)))
    names = levels(runs, axis)
    others = [f for f in runs[0].labels if f != axis]
    rows, tests = [], []
    for combination in product(*(levels(runs, f) for f in others)):
        rest = dict(zip(others, combination, strict=True))
        for level in names[1:]:
            pairs = matched(runs, {**rest, axis: level}, {**rest, axis: names[0]})
            if not pairs:
                continue
            wins = [[r.success for r in side] for side in zip(*pairs, strict=True)]
            tests.append(mcnemar(*wins))
            rows.append(
                [
                    ", ".join([level, *combination]), names[0], str(len(pairs)),
                    *(f"{sum(side)}/{len(side)}" for side in wins),
                    *(str(difference(pairs, key)) for key in ("mass", "H_seq")), f"{tests[-1]:.2g}",
                ]
            )  # fmt: skip
    header = [
        "arm", f"against ({axis})", "pairs", "successes", "of the other", "mass, difference",
        "H_seq, difference", "McNemar p", "Holm p",
    ]  # fmt: skip
    rows = [[*row, f"{p:.2g}"] for row, p in zip(rows, holm(tests), strict=True)]
    name = f"{experiment}-pairs"
    return [Table(name, f"{experiment}. {title}: paired by seed", header, rows)] if rows else []


def matched(runs: Sequence[Run], first: dict[str, str], second: dict[str, str]) -> list[tuple[Run, Run]]:
    """Runs of two arms with the same trunk and seed. One that diverged counts, by its last measurement."""
    sides = [{(r.trunk, r.seed): r for r in chosen(runs, **labels)} for labels in (first, second)]
    return [(sides[0][key], sides[1][key]) for key in sides[0] if key in sides[1]]


def difference(pairs: Sequence[tuple[Run, Run]], key: str) -> Interval:
    """Mean paired difference of a metric at the end, first - second."""
    return by_trunk(
        [a for a, _ in pairs],
        [float(a.summary["end"][key]) - float(b.summary["end"][key]) for a, b in pairs],
    )


def by_trunk(runs: Sequence[Run], values: Sequence[float]) -> Interval:
    """Bootstrap of one value a run, over trunks and then seeds."""
    groups: dict[int, list[float]] = {}
    for run, value in zip(runs, values, strict=True):
        groups.setdefault(run.trunk, []).append(value)
    return bootstrap(groups)


def slopes(runs: Sequence[Run]) -> str:
    """In words: the change of the entropy for ten times as many prompts, by breadth and update."""

    def changed(run: Run) -> float:
        return float(run.summary["end"]["H_seq"] - run.summary["start"]["H_seq"])

    lines = []
    for breadth, update in product(levels(runs, "breadth"), levels(runs, "algorithm")):
        here = chosen(runs, breadth=breadth, algorithm=update)
        found = seed_slopes(here, changed)
        if found:
            interval = by_trunk([run for run, _ in found], [slope for _, slope in found])
            lines.append(f"{breadth} domain{'s' if breadth != '1' else ''}, {update}: {interval} nats")
    return f"Change of dH for ten times as many prompts: {'; '.join(lines)}." if lines else ""


def seed_slopes(runs: Sequence[Run], value: Callable[[Run], float]) -> list[tuple[Run, float]]:
    """Least-squares slope of `value` on log10 of the number of prompts, for each trunk and seed that has at
    least two numbers of prompts."""
    groups: dict[tuple[int, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.trunk, run.seed), []).append(run)
    out = []
    for group in groups.values():
        x = np.log10([int(r.labels["prompts"]) for r in group])
        if len(set(x)) > 1:
            out.append((group[0], float(np.polyfit(x, [value(r) for r in group], 1)[0])))
    return out


def drive(logs: Iterable[Sequence[Mapping[str, Any]]]) -> str:
    """In words: how the covariance of log-probability and advantage goes with the exact change of entropy.

    `logs` are the rows of every cell; a pair of evaluations between which the policy moved counts once. The
    sign is that of arXiv 2505.22617: a positive covariance lowers the entropy.
    """
    covariance, change = [], []
    for rows in logs:
        for a, b in pairwise(rows):
            if "train/covariance" in b and b["KL"] != a["KL"]:
                covariance.append(float(b["train/covariance"]))
                change.append(float(b["H_seq"] - a["H_seq"]))
    if len(change) < 10:
        return ""
    agree = np.mean((np.array(covariance) > 0) == (np.array(change) < 0))
    return (
        "Covariance of log-probability and advantage against the exact change of entropy, over "
        f"{len(change)} stretches between two evaluations: rank correlation "
        f"{spearman(covariance, change):.2f}, signs opposite in {agree:.0%}."
    )
