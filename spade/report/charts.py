"""Charts of a run's metrics as SVG, readable on a light and on a dark page and in grey."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spade.report.columns import PHASES
from spade.report.curves import COLOURS, smooth

INK = "#7f7f7f"
"""Text and axes: as far from white as from black."""
DASHES = ("-", "--", ":", "-.")
MAX_POINTS = 400
Row = Mapping[str, Any]
Lines = Sequence[tuple[str, str]]
"""(metric key, label)."""

PANELS: tuple[tuple[str, Lines], ...] = (
    ("Return in training", (("return_plain", "plain"), ("return_hinted", "hinted"))),
    ("Regret (band: one standard error)", (("regret", "regret"),)),
    ("Designs accepted", (("accept_rate", "accepted"), ("valid_rate", "valid"))),
    (
        "Programs by regime",
        (
            ("share/frontier", "frontier"),
            ("share/mastered", "mastered"),
            ("share/intractable", "intractable"),
        ),
    ),
    (
        "Entropy of sampled tokens",
        (("learner/entropy/agent", "Agent"), ("learner/entropy/designer", "Designer")),
    ),
    (
        "Sampled tokens a play or design, mean",
        (
            ("play_tokens/plain_mean", "plain play"),
            ("play_tokens/hinted_mean", "hinted play"),
            ("design_tokens/mean", "design"),
        ),
    ),
)
BANDS = {"regret": "regret_stderr"}
MAX_REASONS = 5
LENS = {
    "token_entropy": "Entropy lens: a token of fresh samples",
    "sequence_entropy": "Entropy lens: a whole sample",
    "kl": "Entropy lens: divergence from the start model",
    "off_grammar": "Entropy lens: share that cannot be read",
}
"""Numbers of the lens that are drawn, by role."""


def charts(rows: Sequence[Row], scores: Sequence[Row] = ()) -> list[tuple[str, str]]:
    """(title, SVG) of every chart for which the run has data; `scores` are evaluated checkpoints
    (`spade.report.run_data.checkpoint_scores`)."""
    out = [
        (f"{name} at checkpoints (bars: one standard error)", _scores(of)) for name, of in _by_suite(scores)
    ]
    for title, lines in PANELS:
        known = [(key, label) for key, label in lines if _has(rows, key)]
        if known:
            out.append((title, _line_chart(rows, known)))
    reasons = _reasons(rows)
    if reasons:
        lines = [(f"rejected/{code}", code) for code in reasons]
        out.append(("Rejected designs a step, most frequent reasons", _line_chart(rows, lines, missing=0.0)))
    if phases := [p for p in PHASES if _has(rows, f"seconds/{p}")]:
        out.append(("Seconds a step by phase", _areas(rows, [(f"seconds/{p}", p) for p in phases])))
    for name, title in LENS.items():
        known = [(f"lens/{role}/{name}", role.capitalize()) for role in ("agent", "designer")]
        if known := [(key, label) for key, label in known if _has(rows, key)]:
            out.append((title, _line_chart(rows, known)))
    return out


def _has(rows: Sequence[Row], key: str) -> bool:
    return any(row.get(key) is not None for row in rows)


def _reasons(rows: Sequence[Row]) -> list[str]:
    totals: dict[str, float] = {}
    for row in rows:
        for key, value in row.items():
            if key.startswith("rejected/"):
                totals[key.removeprefix("rejected/")] = totals.get(key.removeprefix("rejected/"), 0) + value
    return sorted(totals, key=lambda code: (-totals[code], code))[:MAX_REASONS]


def _series(rows: Sequence[Row], key: str, missing: float | None = None) -> tuple[Any, Any]:
    """Steps and values; with `missing`, steps on which designs were made but none of this kind count so."""
    found = [
        (row["step"], row.get(key, missing))
        for row in rows
        if row.get(key) is not None or (missing is not None and "designs" in row)
    ]
    x, y = np.asarray(found, dtype=np.float64).reshape(-1, 2).T
    stride = max(1, x.size // MAX_POINTS)
    return x[::stride], smooth(y)[::stride]


def _line_chart(rows: Sequence[Row], lines: Lines, missing: float | None = None) -> str:
    figure, axis = _panel()
    for place, (key, label) in enumerate(lines):
        x, y = _series(rows, key, missing)
        colour = COLOURS[place % len(COLOURS)]
        dot = "o" if x.size == 1 else None  # a line through one point is not seen
        axis.plot(x, y, DASHES[place % 4], color=colour, label=label, linewidth=1.5, marker=dot, markersize=4)
        if band := BANDS.get(key):
            both = [row for row in rows if row.get(key) is not None and row.get(band) is not None]
            (bx, middle), (_, error) = _series(both, key), _series(both, band)
            axis.fill_between(bx, middle - error, middle + error, color=colour, alpha=0.2, linewidth=0)
            axis.axhline(0, color=INK, linewidth=0.7)
    return _svg(figure, axis)


def _by_suite(scores: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    suites = dict.fromkeys(str(row["suite"]) for row in scores)
    found = [(name, [row for row in scores if row["suite"] == name]) for name in suites]
    return [(name, rows) for name, rows in found if len(rows) > 1]


def _scores(rows: Sequence[Row]) -> str:
    figure, axis = _panel()
    x, y, error = np.asarray([(r["step"], r["score"], r["stderr"]) for r in rows], dtype=np.float64).T
    axis.errorbar(x, y, yerr=error, color=COLOURS[0], marker="o", markersize=3, capsize=2, linewidth=1.5)
    axis.set_ylabel(f"score, {rows[0]['items']} items", color=INK, fontsize=8)
    return _svg(figure, axis)


def _areas(rows: Sequence[Row], lines: Lines) -> str:
    figure, axis = _panel()
    steps = np.asarray([row["step"] for row in rows], dtype=np.float64)
    stride = max(1, steps.size // MAX_POINTS)
    parts = [smooth(np.asarray([float(row.get(key) or 0) for row in rows]))[::stride] for key, _ in lines]
    axis.stackplot(
        steps[::stride], parts, labels=[label for _, label in lines],
        colors=[COLOURS[k % len(COLOURS)] for k in range(len(lines))], alpha=0.8, linewidth=0,
    )  # fmt: skip
    return _svg(figure, axis, loc="center left", bbox_to_anchor=(1.0, 0.5), reverse=True)


def _panel() -> tuple[Any, Any]:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(5.2, 3.0), layout="constrained")
    FigureCanvasSVG(figure)
    figure.patch.set_alpha(0)
    axis = figure.subplots()
    axis.set_facecolor("none")
    axis.tick_params(colors=INK, labelsize=8)
    axis.set_xlabel("step", color=INK, fontsize=8)
    axis.grid(alpha=0.25, color=INK)
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["bottom", "left"]].set_color(INK)
    return figure, axis


def _svg(figure: Any, axis: Any, **legend: Any) -> str:
    import matplotlib

    if len(axis.get_legend_handles_labels()[1]) > 1:
        axis.legend(fontsize=8, frameon=False, labelcolor=INK, **legend)
    buffer = io.StringIO()
    # Text stays text (small, searchable); a fixed salt makes equal charts equal files.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "spade"}):
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    return re.sub(r' width="[^"]*pt"| height="[^"]*pt"', "", text, count=2)
