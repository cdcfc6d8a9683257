"""The files of a comparison: tables in every format, the report, and the plots."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade.files import atomic_write, make_folder, read_jsonl, write_json
from spade.report.curves import RunSeries, draw_curves, draw_scores
from spade.report.markdown import write_report
from spade_evals import stats
from spade_evals.passk import draw_pass_at_k
from spade_evals.render import to_csv, to_html, to_latex, to_markdown, to_terminal
from spade_evals.results import EvalRun, documents

if TYPE_CHECKING:
    from spade_evals.comparison import CompareReport


def claims(report: CompareReport) -> list[str]:
    """One sentence a row about its mean score."""
    out = []
    for row in report.rows:
        if stats.SCORE in row.tests:
            c = report.comparison(row.label)
            interval = "" if math.isnan(c.low) else f", 95 % interval {c.low:+.3f} to {c.high:+.3f}"
            least, known = row.tests[stats.SCORE].detectable, c.low > 0 or c.high < 0
            more = "" if known or math.isnan(least) else f" (one of {least:.3f} would be found 4 times in 5)"
            out.append(f"**{c.name}**: {c.difference:+.3f} against {c.reference}{interval}: {c.words}{more}.")
    return out


Point = tuple[float, float, float, float]
"""Sampled tokens, score, standard error, step (NaN where it is not known)."""


def series_of(runs: Sequence[EvalRun]) -> list[RunSeries]:
    """Metrics and evaluated steps of the training runs, starting from the score of the untrained model.

    All points of a curve, and all curves, have one protocol: that of the compared results, or of another
    evaluation of the suite if more checkpoints were evaluated so (as the training loop does, on fewer items).
    """
    trained = [run for run in runs if run.folder is not None and run.seed is not None]
    points = {run.path: _points(run, runs) for run in trained}
    counts = Counter(print_ for found in points.values() for print_, there in found.items() for _ in there)
    chosen = max(counts, key=lambda print_: (counts[print_], print_ == trained[0].fingerprint), default="")
    out = []
    for run in trained:
        assert run.folder is not None
        there = sorted(points[run.path].get(chosen, {}).values())
        out.append(
            RunSeries(
                run.label,
                run.seed,
                tuple(read_jsonl(run.folder / "metrics.jsonl")),
                tuple((tokens, mean, stderr) for tokens, mean, stderr, _ in there),
                tuple((step, mean, stderr) for _, mean, stderr, step in there if step == step),
            )
        )
    return out


def _points(run: EvalRun, runs: Sequence[EvalRun]) -> dict[str, dict[float, Point]]:
    """Points of one run by protocol and tokens."""
    found: dict[str, dict[float, Point]] = {}

    def add(protocol: str, score: tuple[float | None, float | None, int], origin: Any) -> None:
        mean, stderr, _ = score
        step, tokens = origin.get("step"), origin.get("tokens")
        if origin.get("seed") is None:
            step, tokens = 0, 0  # the start model
        if mean is not None and tokens is not None:
            point = (float(tokens), mean, stderr or 0.0, math.nan if step is None else float(step))
            found.setdefault(protocol, {})[point[0]] = point

    for start in runs:
        if start.seed is None and start.ref == run.origin.model:
            add(start.fingerprint, start.score, {})
    if run.folder is not None and run.folder.is_dir():
        for _, tree in documents(run.folder):
            if tree["protocol"]["suite"] == run.suite:
                add(tree["fingerprint"], tree["result"]["score"], tree["origin"])
    add(run.fingerprint, run.score, {"seed": run.seed, "step": run.origin.step, "tokens": run.origin.tokens})
    return found


def write_outputs(report: CompareReport, runs: Sequence[EvalRun], out: Path) -> CompareReport:
    """Write `compare.{md,csv,tex,html,json,txt}`, `report.md` and the plots for which there is data.

    The plots: `curves.png` (training), `scores.png` (score against step and tokens), `passk.png`.
    """
    make_folder(out)
    series = series_of(runs)
    pictures = {
        "Training": draw_curves(series, out / "curves.png") if series else None,
        "Score against training": draw_scores(series, out / "scores.png") if series else None,
        "pass@k": draw_pass_at_k(runs, out / "passk.png"),
    }
    drawn = {caption: path for caption, path in pictures.items() if path is not None}
    formats = {
        "md": to_markdown(report),
        "csv": to_csv(report),
        "tex": to_latex(report),
        "txt": to_terminal(report) + "\n",
        "html": to_html(report, drawn),
    }
    for kind, text in formats.items():
        atomic_write(out / f"compare.{kind}", text)
    write_json(out / "compare.json", report)
    files = [out / f"compare.{kind}" for kind in (*formats, "json")]
    files += drawn.values()
    files.append(
        write_report(
            out / "report.md",
            title=f"Comparison on {report.suite}",
            claims=claims(report),
            comparison=formats["md"],
            curves=drawn.get("Training"),
            runs=sorted({run.folder for run in runs if run.folder is not None}),
        )
    )
    return replace(report, files={path.name: str(path) for path in files})
