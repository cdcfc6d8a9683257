"""Table and plot of `collapse.py`, from the figures of its runs."""

from __future__ import annotations

import io
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tabulate import tabulate

from spade.files import atomic_write
from spade.report.curves import COLOURS
from spade_evals.stats import t_interval


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one run."""

    name: str
    seed: int
    spans: list[tuple[int, int]]
    """First and last training step of each window."""
    figures: list[dict[str, float]]
    """One row for each window; NaN where there is nothing."""
    scores: dict[int, float]
    """Held-out return by training step."""
    recheck: dict[str, float]
    """What the default says of late programs; empty when it was not asked."""


Settings = Mapping[str, Sequence[Summary]]
"""Runs by name of their config."""


def settings(summaries: Sequence[Summary]) -> dict[str, list[Summary]]:
    """The runs of each config name, in the order given."""
    found: dict[str, list[Summary]] = defaultdict(list)
    for summary in summaries:
        found[summary.name].append(summary)
    return dict(found)


def report(summaries: Sequence[Summary]) -> str:
    """The whole page as Markdown."""
    runs = settings(summaries)
    parts = ["# Collapse of the Designer", _figure_table(runs), _about(runs), _score_table(runs)]
    if len(runs) > 1:
        parts.append(_difference_table(runs))
    if any(s.recheck for s in summaries):
        parts.append(_recheck_table(runs))
    return "\n\n".join(parts) + "\n"


def _figure_table(runs: Settings) -> str:
    """A row for each figure, two columns (first, last window) for each setting."""
    head, rows = ["mean over seeds (range)"], defaultdict(list)
    for name, seeds in runs.items():
        head += [f"{name}, first", f"{name}, last"]
        for at in (0, -1):
            for key in seeds[0].figures[at]:
                rows[key].append(cell([s.figures[at][key] for s in seeds]))
    return markdown([[key, *cells] for key, cells in rows.items()], head)


def _about(runs: Settings) -> str:
    first, last = next(iter(runs.values()))[0].spans[0]
    rows = [f"{name}: seeds {', '.join(str(s.seed) for s in seeds)}" for name, seeds in runs.items()]
    return f"Windows of {last - first + 1} steps. {'; '.join(rows)}."


def _score_table(runs: Settings) -> str:
    steps = sorted({step for seeds in runs.values() for run in seeds for step in run.scores})
    if not steps:
        return "No held-out results in these runs; train them with eval.every=N."
    rows = [
        [name, *(cell([run.scores[s] for run in seeds if s in run.scores], 3) for s in steps)]
        for name, seeds in runs.items()
    ]
    return markdown(rows, ["held-out return", *(f"step {s}" for s in steps)])


def _difference_table(runs: Settings) -> str:
    """Every other setting minus the first one at the end, paired by seed."""
    base, *others = runs
    rows = []
    for name in others:
        pairs = [(a, b) for a in runs[name] for b in runs[base] if a.seed == b.seed]
        for key in pairs[0][0].figures[-1] if pairs else ():
            rows.append(
                [f"{name}: {key}", _interval([a.figures[-1][key] - b.figures[-1][key] for a, b in pairs])]
            )
        steps = [max(a.scores) for a, b in pairs if a.scores and max(a.scores) in b.scores]
        if steps and len(set(steps)) == 1:
            gaps = [a.scores[steps[0]] - b.scores[steps[0]] for a, b in pairs if steps[0] in a.scores]
            rows.append([f"{name}: held-out return, step {steps[0]}", _interval(gaps)])
    return markdown(rows, [f"last window, minus {base}", "mean [95 % t interval over seeds]"])


def _recheck_table(runs: Settings) -> str:
    keys = list(dict.fromkeys(k for seeds in runs.values() for s in seeds for k in s.recheck))
    rows = [
        [k, *(cell([s.recheck[k] for s in seeds if k in s.recheck]) for seeds in runs.values())] for k in keys
    ]
    return markdown(rows, ["judged once more", *runs])


def cell(values: Sequence[float], digits: int = 2) -> str:
    """Mean of the known values with their range."""
    known = [v for v in values if not math.isnan(v)]
    if not known:
        return "\N{EN DASH}"
    mean = f"{np.mean(known):.{digits}f}"
    return mean if len(known) == 1 else f"{mean} ({min(known):.{digits}f} to {max(known):.{digits}f})"


def _interval(values: Sequence[float]) -> str:
    known = [v for v in values if not math.isnan(v)]
    if not known:
        return "\N{EN DASH}"
    found = t_interval(known)
    bounds = f" [{found.low:+.2f}, {found.high:+.2f}]" if len(known) > 1 else ""
    return f"{found.mean:+.2f}{bounds}"


def markdown(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    """A Markdown table."""
    return tabulate(rows, headers=head, tablefmt="github", disable_numparse=True)


def draw(summaries: Sequence[Summary], path: Path) -> None:
    """Four panels over training steps, a colour a setting, a thin line a seed; PNG or SVG by the suffix."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2)
    panels: list[tuple[str, Callable[[Summary], tuple[list[float], list[float]]]]] = [
        (
            "Effective number of mechanics, repeats counted",
            lambda run: _line(run, "effective, repeats counted"),
        ),
        (
            "Share of the most frequent mechanic, repeats counted",
            lambda run: _line(run, "most frequent, repeats counted"),
        ),
        ("Regret", lambda run: _line(run, "regret")),
        ("Held-out return", lambda run: ([float(s) for s in run.scores], list(run.scores.values()))),
    ]
    runs = settings(summaries)
    for axis, (title, line) in zip(axes.flat, panels, strict=True):
        for (name, seeds), colour in zip(runs.items(), COLOURS * len(runs), strict=False):
            lines = [line(run) for run in seeds]
            for x, y in lines:
                axis.plot(x, y, color=colour, linewidth=0.8, alpha=0.5)
            xs = [x for x, _ in lines if x]
            if xs and all(x == xs[0] for x in xs):
                mean = np.nanmean([y for _, y in lines if y], axis=0)
                axis.plot(xs[0], mean, color=colour, marker="o", markersize=3, linewidth=2, label=name)
            else:
                axis.plot([], [], color=colour, label=name)
        axis.set_title(title, fontsize=11)
        axis.set_xlabel("training step")
        axis.grid(alpha=0.25)
        axis.legend(fontsize=8, frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."), dpi=120)
    atomic_write(path, buffer.getvalue())


def _line(run: Summary, key: str) -> tuple[list[float], list[float]]:
    """Last step of each window with a value, and the values."""
    pairs = zip(run.spans, run.figures, strict=True)
    known = [(float(last), f[key]) for (_, last), f in pairs if not math.isnan(f[key])]
    return [x for x, _ in known], [y for _, y in known]
