"""Figures of the study, PNG and SVG. Lines differ in dash and marker as well as colour, for grey print."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spade.errors import InputError
from spade.files import atomic_write, read_jsonl
from spade.report.curves import COLOURS
from spade.study.measure import PASS_K
from spade.study.tables import cells_of, end, levels
from spade.study.verdicts import Run, chosen

DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++", "ooo")
FLOOR = 1e-8
"""Smallest mass drawn on a logarithmic axis."""

Rows = dict[str, list[dict[str, Any]]]
"""Log rows of every cell, by its key in `Run.summary["key"]`."""


def new_figure(columns: int, height: float = 3.8, rows: int = 1) -> tuple[Any, list[Any]]:
    """A figure with `columns` panels side by side, in `rows` rows of this height in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns)
    return figure, list(np.atleast_1d(axes).flat)


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """NAME.png and NAME.svg, the same bytes for the same data."""
    from matplotlib import rc_context

    paths = []
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # placed once, not again for each format
    with rc_context({"svg.hashsalt": "spade"}):
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=130, metadata=metadata)
            atomic_write(folder / f"{name}.{kind}", buffer.getvalue())
            paths.append(folder / f"{name}.{kind}")
    return paths


def look(number: int) -> dict[str, Any]:
    """Colour, dash and marker of the line with this number."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 4,
        "linewidth": 1.4,
    }


def label(axis: Any, title: str, x: str, y: str, legend: bool = True) -> None:
    """Titles, grid and legend of a panel."""
    axis.set(title=title, xlabel=x, ylabel=y)
    axis.title.set_fontsize(10)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    if legend and axis.get_legend_handles_labels()[1]:
        axis.legend(fontsize=7, frameon=False)


def arm(runs: Sequence[Run], labels: dict[str, str]) -> str:
    """Name of a combination of levels: those of the factors that vary."""
    varying = [level for factor, level in labels.items() if len(levels(runs, factor)) > 1]
    return ", ".join(varying or labels.values())


def curves(axis: Any, runs: Sequence[Run], rows: Rows, key: str, log: bool = False) -> None:
    """A metric against training steps: every run thin, the median of each combination of levels thick."""
    for number, (labels, here) in enumerate(cells_of(runs)):
        lines = []
        for run in here:
            log_rows = [r for r in rows[run.summary["key"]] if r.get(key) is not None]
            if not log_rows:
                continue
            x, y = (np.array([r[k] for r in log_rows], float) for k in ("step", key))
            y = np.maximum(y, FLOOR) if log else y
            lines.append((x, y))
            axis.plot(x, y, color=COLOURS[number % len(COLOURS)], linewidth=0.6, alpha=0.4)
        if lines:
            longest = max(lines, key=lambda line: len(line[0]))[0]
            middle = np.median([np.interp(longest, x, y) for x, y in lines], axis=0)
            axis.plot(longest, middle, label=arm(runs, labels), **look(number))
    if log:
        axis.set_yscale("log")


# --- by experiment ---------------------------------------------------------------------------------------


def prior(runs: Sequence[Run], rows: Rows, folder: Path) -> list[Path]:
    """Exact mass over training, and success and take-off against lambda."""
    figure, (first, second, third) = new_figure(3)
    curves(first, runs, rows, "mass", log=True)
    label(first, "exact mass of the wanted behaviour", "step", "mass")
    lambdas = np.array([max(r.summary["lambda"], 1e-4) for r in runs])
    grid = np.logspace(np.log10(lambdas.min()) - 0.5, np.log10(lambdas.max()) + 0.5, 200)
    second.plot(grid, 1 - np.exp(-grid), color="#888888", linewidth=1.2, label="1 - exp(-lambda)")
    for number, level in enumerate(levels(runs, "prior")):
        here = chosen(runs, prior=level)
        x = [max(r.summary["lambda"], 1e-4) for r in here]
        jitter = np.linspace(-0.02, 0.02, len(here))
        second.plot(
            x,
            [float(r.success) + j for r, j in zip(here, jitter, strict=True)],
            label=level,
            **points(number),
        )
        risen = [r for r in here if r.summary["takeoff"] is not None]
        third.plot([r.summary["lambda"] for r in risen], [r.summary["takeoff"] for r in risen], label=level,
                   **points(number))  # fmt: skip
    second.set_xscale("log")
    third.set_xscale("log")
    label(second, "success against lambda", "expected right rollouts of the budget (lambda)", "success")
    label(third, "take-off against lambda", "lambda", "first step with mass >= .5")
    return save(figure, folder, "E1-prior")


def points(number: int) -> dict[str, Any]:
    """As `look`, markers only."""
    return {**look(number), "linestyle": "none", "markersize": 5}


def granularity(runs: Sequence[Run], rows: Rows, folder: Path) -> list[Path]:
    """Sparse rewards dashed, graded ones solid, one panel for each start."""
    starts = levels(runs, "prior")
    figure, axes = new_figure(len(starts))
    for axis, name in zip(axes, starts, strict=True):
        for number, reward in enumerate(levels(runs, "reward")):
            style = {**look(number), "linestyle": "--" if reward == "exact" else "-"}
            for seen, run in enumerate(chosen(runs, prior=name, reward=reward)):
                log_rows = rows[run.summary["key"]]
                axis.plot([r["step"] for r in log_rows], [max(r["mass"], FLOOR) for r in log_rows],
                          label=reward if not seen else None, alpha=0.8, **style)  # fmt: skip
        axis.set_yscale("log")
        label(axis, f"start: {name}", "step", "exact mass")
    return save(figure, folder, "E3-granularity")


def spurious(runs: Sequence[Run], rows: Rows, folder: Path) -> list[Path]:
    """Entropy in the first domain and accuracy elsewhere under a random reward."""
    figure, (first, second) = new_figure(2)
    curves(first, runs, rows, "H_seq")
    curves(second, runs, rows, "others")
    label(first, "random reward: entropy in the first domain (prompts, domains)", "step", "H_seq, nats")
    label(second, "accuracy on the other domains", "step", "exact mass of the right response")
    return save(figure, folder, "E5-random")


def stages(runs: Sequence[Run], rows: Rows, folder: Path) -> list[Path]:
    """Entropies by stage, by place, and forgetting against divergence."""
    figure, (first, second, third) = new_figure(3)
    names = levels(runs, "stage")
    keys = ("H_seq", "H_beh")
    for number, key in enumerate(keys):
        x = np.arange(len(names)) + 0.4 * (number - 0.5)
        first.bar(x, [_mean(chosen(runs, stage=s), key) for s in names], 0.38, label=key,
                  color=COLOURS[number], hatch=HATCHES[number], edgecolor="black", linewidth=0.5)  # fmt: skip
    first.set_xticks(np.arange(len(names)), names)
    for number, name in enumerate(names):
        here = chosen(runs, stage=name)
        second.plot(range(1, 5), [_mean(here, f"H_tok/{i}") for i in range(1, 5)], label=name, **look(number))
        forgetting = [[end(k)(r) for r in here] for k in ("KL", "others")]
        third.plot(*forgetting, label=name, **points(number))
    second.set_xticks(range(1, 5))
    label(first, "entropy by stage", "", "nats")
    label(second, "conditional entropy by place", "place of the response", "nats")
    label(third, "forgetting against divergence", "KL to base, nats", "accuracy on other domains")
    return save(figure, folder, "E7-stages")


def passing(runs: Sequence[Run], rows: Rows, folder: Path) -> list[Path]:
    """pass@k before and after."""
    figure, (axis,) = new_figure(1)
    first = [rows[r.summary["key"]][0] for r in runs]
    axis.plot(
        PASS_K, [np.mean([r[f"pass@{k}"] for r in first]) for k in PASS_K], color="black", label="start"
    )
    for number, (labels, here) in enumerate(cells_of(runs)):
        y = [np.mean([end(f"pass@{k}")(r) for r in here]) for k in PASS_K]
        axis.plot(PASS_K, y, label=arm(runs, labels), **look(number))
    axis.set_xscale("log")
    label(axis, "exact pass@k", "k", "chance that one of k samples is right")
    return save(figure, folder, "E8-pass")


def estimators(runs: Sequence[Run], rows: Rows, folder: Path) -> list[Path]:
    """Bias and error against the number of samples."""
    figure, (first, second) = new_figure(2)
    sizes = (16, 64, 256, 1024)
    for number, name in enumerate(("chain_rule", "mean_nll", "plug_in", "miller_madow")):
        for axis, kind in ((first, "bias"), (second, "rmse")):
            y = [np.mean([r.summary[str(n)][f"{name}/{kind}"] for r in runs]) for n in sizes]
            axis.plot(sizes, y, label=name.replace("_", " "), **look(number))
    first.axhline(0, color="#888888", linewidth=0.8)
    for axis, title in ((first, "bias"), (second, "root mean square error")):
        axis.set_xscale("log")
        label(axis, f"sampled sequence entropy: {title}", "samples a prompt", "nats")
    return save(figure, folder, "E13-estimators")


def general(experiment: str) -> Callable[[Sequence[Run], Rows, Path], list[Path]]:
    """Mass and entropy over training, for experiments without a figure of their own."""

    def draw(runs: Sequence[Run], rows: Rows, folder: Path) -> list[Path]:
        figure, (first, second) = new_figure(2)
        curves(first, runs, rows, "mass", log=True)
        curves(second, runs, rows, "H_seq")
        label(first, "exact mass of the wanted behaviour", "step", "mass")
        label(second, "sequence entropy", "step", "nats")
        return save(figure, folder, f"{experiment}-curves")

    return draw


SPECIAL = {
    "E1": prior, "E3": granularity, "E5": spurious, "E7": stages, "E8": passing, "E13": estimators,
}  # fmt: skip


def figures_of(experiment: str, runs: Sequence[Run], rows: Rows, folder: Path) -> list[Path]:
    """Draw the figure of one experiment; returns the files."""
    from spade.study.panels import PANELS  # uses what is above
    from spade.study.real_report import draw_real

    draw = {**SPECIAL, **PANELS, "R1": draw_real}.get(experiment, general(experiment))
    return draw(runs, rows, folder) if runs else []


def _mean(runs: Sequence[Run], key: str) -> float:
    return float(np.mean([end(key)(r) for r in runs])) if runs else float("nan")


# --- checkpoints and runs --------------------------------------------------------------------------------


def draw_profiles(rows: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """Entropies of several checkpoints side by side, as `spade study entropy` measured them."""
    figure, axes = new_figure(3 if len(rows) > 1 else 2)  # of one alone there is no divergence
    names = [Path(str(row["checkpoint"])).name for row in rows]
    panels = (
        ("H_seq", "sequence entropy"),
        ("H_tok (T=1)", "token entropy"),
        ("KL(now || first)", "divergence"),
    )
    for number, (axis, (key, title)) in enumerate(zip(axes, panels, strict=False)):
        values = [row.get(key) or 0.0 for row in rows]
        axis.bar(range(len(rows)), values, color=COLOURS[number], hatch=HATCHES[number], edgecolor="black")
        axis.set_xticks(range(len(rows)), names, rotation=20, fontsize=8)
        label(axis, title, "", "nats a token" if number else "nats", legend=False)
    return save(figure, folder, "entropy")


def draw_lens(run: Path) -> list[Path]:
    """What the lens measured in a training run, into `RUN/lens.png` and `.svg`.

    Raises `InputError` for a run without such rows.
    """
    rows = [r for r in read_jsonl(run / "metrics.jsonl") if any(k.startswith("lens/") for k in r)]
    if not rows:
        raise InputError(f"{run} has no rows of the lens; it is off (train.lens.every=0), or this is no run.")
    figure, axes = new_figure(4)
    panels = (
        ("sequence entropy", ("sequence_entropy",), "nats"),
        ("divergence from the start", ("kl", "frozen_kl"), "nats a token"),
        ("pass@k on unseen programs, distinct designs", ("pass_1", "pass_max", "distinct"), "share"),
        ("unreadable outputs", ("off_grammar",), "share"),
    )
    for axis, (title, keys, unit) in zip(axes, panels, strict=True):
        for number, (role, key) in enumerate((r, k) for r in ("agent", "designer") for k in keys):
            seen = [(r["step"], r[f"lens/{role}/{key}"]) for r in rows if f"lens/{role}/{key}" in r]
            if seen:
                axis.plot(*zip(*seen, strict=True), label=f"{role}: {key.replace('_', ' ')}", **look(number))
        label(axis, title, "step", unit)
    return save(figure, run, "lens")
