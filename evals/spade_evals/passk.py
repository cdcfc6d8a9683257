"""pass@k of several checkpoints as curves: what more samples would bring."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spade.files import atomic_write
from spade.report.curves import COLOURS
from spade_evals.results import EvalRun
from spade_evals.stats import columns_of, pass_at_k


def pass_curve(run: EvalRun, top: str) -> list[float]:
    """pass@1, ..., pass@n of one top part, n the fewest samples of its items; the mean over leaves of means.

    Uses the unbiased estimator of `stats.pass_at_k`. Empty without items.
    """
    leaves: dict[str, list[tuple[int, int]]] = {}
    for item in run.items.values():
        if item.part.split("/")[0] == top:
            leaves.setdefault(item.part, []).append((item.n, item.solved))
    if not leaves:
        return []
    most = min(n for own in leaves.values() for n, _ in own)
    return [
        sum(sum(pass_at_k(n, c, k) for n, c in own) / len(own) for own in leaves.values()) / len(leaves)
        for k in range(1, most + 1)
    ]


def draw_pass_at_k(runs: Sequence[EvalRun], path: Path) -> Path | None:
    """One panel for every top part that was sampled more than once, one line a run; None without any."""
    tops = sorted({c for run in runs for c in columns_of([i.part for i in run.items.values()])} - {"score"})
    curves = {top: [(run, pass_curve(run, top)) for run in runs] for top in tops if "/" not in top}
    curves = {top: own for top, own in curves.items() if any(len(curve) > 1 for _, curve in own)}
    if not curves:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(curves), 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for axis, (top, own) in zip(panels, curves.items(), strict=True):
        _draw(axis, top, own)
    figure.supylabel("pass@k", fontsize=10)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    atomic_write(path, buffer.getvalue())
    return path


def _draw(axis: Any, title: str, curves: Sequence[tuple[EvalRun, list[float]]]) -> None:
    labels = list(dict.fromkeys(run.label for run, _ in curves))
    named: set[str] = set()
    for run, curve in curves:
        place = labels.index(run.label)
        axis.plot(
            range(1, len(curve) + 1), curve, color=COLOURS[place % len(COLOURS)], marker="o", markersize=3,
            linestyle=("-", "--", ":", "-.")[place % 4],
            label=None if run.label in named else run.label.replace("$", "\\$").lstrip("_"),
        )  # fmt: skip
        named.add(run.label)
    axis.set_title(title, fontsize=11)
    axis.set_xlabel("k")
    axis.set_ylim(0, 1.02)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8, frameon=False)
