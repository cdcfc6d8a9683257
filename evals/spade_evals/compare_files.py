"""The files of a comparison: tables in every format, the report, and the plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from spade.files import atomic_write, read_jsonl, write_json
from spade.report.curves import RunSeries, draw_curves, draw_scores
from spade.report.markdown import write_report
from spade_evals import stats
from spade_evals.passk import draw_pass_at_k
from spade_evals.provenance import require_folder
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
            out.append(f"**{c.name}**: {c.difference:+.3f} against {c.reference}{interval}: {c.words}.")
    return out


def series_of(runs: Sequence[EvalRun]) -> list[RunSeries]:
    """Metrics and evaluated steps of the training runs, starting from the score of the untrained model."""
    start = next((r for r in runs if r.seed is None and r.score[0] is not None), None)
    out = []
    for run in runs:
        folder = run.folder
        if folder is None or run.seed is None:
            continue
        points: dict[float, tuple[float, float, float]] = {}
        if start is not None and start.fingerprint == run.fingerprint and run.origin.model == start.ref:
            points[0.0] = (float(start.score[0] or 0.0), float(start.score[1] or 0.0), 0.0)
        trees = [tree for _, tree in documents(folder)] if folder.is_dir() else []
        for tree in trees:
            mean, stderr, _ = tree["result"]["score"]
            tokens, step = tree["origin"].get("tokens"), tree["origin"].get("step")
            if tree["fingerprint"] == run.fingerprint and None not in (mean, tokens):
                points[float(tokens)] = (mean, stderr or 0.0, math.nan if step is None else float(step))
        if run.origin.tokens is not None and run.score[0] is not None:
            step = math.nan if run.origin.step is None else float(run.origin.step)
            points[run.origin.tokens] = (run.score[0], run.score[1] or 0.0, step)
        rows = read_jsonl(folder / "metrics.jsonl")
        scores = tuple((tokens, mean, stderr) for tokens, (mean, stderr, _) in sorted(points.items()))
        steps = tuple((step, mean, se) for _, (mean, se, step) in sorted(points.items()) if step == step)
        out.append(RunSeries(run.label, run.seed, tuple(rows), scores, steps))
    return out


def write_outputs(report: CompareReport, runs: Sequence[EvalRun], out: Path) -> CompareReport:
    """Write `compare.{md,csv,tex,html,json,txt}`, `report.md` and the plots for which there is data.

    The plots: `curves.png` (training), `scores.png` (score against step and tokens), `passk.png`.
    """
    require_folder(out)
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
