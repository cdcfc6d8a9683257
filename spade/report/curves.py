"""`curves.png`: how a run went, and how well it did on tasks it never saw, against sampled tokens.

Tokens are the common axis because runs are compared at equal tokens. Runs of one label share a colour; with
several of them each run is a thin line and their mean a thick one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spade.files import atomic_write

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
"""Okabe and Ito's palette, told apart with colour blindness too."""

GRID = 100
"""Points on which the mean of several runs is drawn."""

WINDOW = 5
"""Steps averaged, since one step's mean over a dozen programs is noisy."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RunSeries:
    """One run: its metric rows and its evaluations as (tokens, score, standard error)."""

    label: str
    seed: int | None
    metrics: tuple[Mapping[str, Any], ...]
    scores: tuple[tuple[float, float, float], ...]
    steps: tuple[tuple[float, float, float], ...] = ()
    """The same evaluations as (step, score, standard error)."""

    def line(self, key: str) -> tuple[Floats, Floats]:
        """Tokens (steps if the run has no token count) and the values of one metric; rows without it drop."""
        rows = [row for row in self.metrics if row.get(key) is not None]
        x = [
            row.get("tokens_total") if row.get("tokens_total") is not None else row.get("step")
            for row in rows
        ]
        return np.asarray(x, dtype=np.float64), np.asarray([row[key] for row in rows], dtype=np.float64)


def smooth(values: Floats, window: int = WINDOW) -> Floats:
    """Trailing mean over up to `window` values; same length."""
    if values.size == 0:
        return values
    total = np.cumsum(np.insert(values, 0, 0.0))
    start = np.maximum(0, np.arange(1, values.size + 1) - window)
    end = np.arange(1, values.size + 1)
    return np.asarray((total[end] - total[start]) / (end - start), dtype=np.float64)


def draw_curves(series: Sequence[RunSeries], path: Path) -> Path | None:
    """Draw four panels to `path` (PNG, atomic). Without anything to draw: None, and no file."""
    if not any(run.metrics or run.scores for run in series):
        return None
    import io

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2)
    labels = list(dict.fromkeys(run.label for run in series))
    for label, colour in zip(labels, COLOURS * len(labels), strict=False):
        runs = [run for run in series if run.label == label]
        label = label.replace("$", "\\$").lstrip("_")  # neither mathematics nor a hidden entry
        _lines(axes[0, 0], runs, "return_plain", colour, label)
        _lines(axes[0, 0], runs, "return_hinted", colour, f"{label}, hinted", style="--")
        _lines(axes[0, 1], runs, "regret", colour, label)
        _lines(axes[1, 0], runs, "accept_rate", colour, label)
        _scores(axes[1, 1], runs, colour, label)
    titles = ("Return in training", "Regret: hinted minus plain", "Designs accepted", "Held-out score")
    for axis, title in zip(axes.flat, titles, strict=True):
        _finish(axis, title)
    axes[1, 0].set_ylim(0, 1.02)
    axes[0, 1].axhline(0, color="#999999", linewidth=0.8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    atomic_write(path, buffer.getvalue())
    return path


def draw_scores(series: Sequence[RunSeries], path: Path) -> Path | None:
    """Score against step and against sampled tokens, a line a run; None unless one has two evaluations."""
    if not any(len(run.scores) > 1 for run in series):
        return None
    import io

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    FigureCanvasAgg(figure)
    by_step, by_tokens = figure.subplots(1, 2, sharey=True)
    labels = list(dict.fromkeys(run.label for run in series))
    for label, colour in zip(labels, COLOURS * len(labels), strict=False):
        runs = [run for run in series if run.label == label]
        shown = label.replace("$", "\\$").lstrip("_")
        _scores(by_step, [replace(run, scores=run.steps) for run in runs], colour, shown)
        _scores(by_tokens, runs, colour, shown)
    _finish(by_step, "Held-out score against step", "step")
    _finish(by_tokens, "Held-out score against sampled tokens")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    atomic_write(path, buffer.getvalue())
    return path


def _lines(axis: Any, runs: Sequence[RunSeries], key: str, colour: str, label: str, style: str = "-") -> None:
    lines = [(x, smooth(y)) for x, y in (run.line(key) for run in runs) if x.size]
    if not lines:
        return
    if len(lines) == 1:
        axis.plot(*lines[0], style, color=colour, label=label, linewidth=1.6)
        return
    for x, y in lines:
        axis.plot(x, y, style, color=colour, linewidth=0.7, alpha=0.35)
    common = np.linspace(max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines), GRID)
    mean = np.mean([np.interp(common, x, y) for x, y in lines], axis=0)
    axis.plot(common, mean, style, color=colour, label=f"{label} (mean of {len(lines)})", linewidth=1.8)


def _scores(axis: Any, runs: Sequence[RunSeries], colour: str, label: str) -> None:
    """One run with its intervals; of several, each thin and their mean over what all of them reached."""
    lines = [np.asarray(run.scores, dtype=np.float64).T for run in runs if run.scores]
    if len(lines) == 1:
        x, y, stderr = lines[0]
        axis.errorbar(
            x, y, yerr=1.96 * stderr, color=colour, marker="o", markersize=4, capsize=3, linewidth=1.4,
            label=label,
        )  # fmt: skip
        return
    for x, y, _ in lines:
        axis.plot(x, y, color=colour, marker="o", markersize=2, linewidth=0.7, alpha=0.35)
    if lines:
        common = np.linspace(max(x[0] for x, *_ in lines), min(x[-1] for x, *_ in lines), GRID)
        mean = np.mean([np.interp(common, x, y) for x, y, _ in lines], axis=0)
        axis.plot(common, mean, color=colour, linewidth=2.0, label=f"{label} (mean of {len(lines)})")


def _finish(axis: Any, title: str, unit: str = "sampled tokens") -> None:
    axis.set_title(title, fontsize=11)
    axis.set_xlabel(unit)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.xaxis.set_major_formatter(
        lambda value, _: f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}"
    )
    if axis.get_legend_handles_labels()[1]:
        axis.legend(fontsize=8, frameon=False)
    else:
        axis.text(
            0.5, 0.5, "not recorded", ha="center", va="center", transform=axis.transAxes, color="#999999"
        )
