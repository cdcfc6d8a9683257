"""Print a comparison: terminal, Markdown, CSV and JSON, and the report with its curves.

Every format comes from the same three frames: scores, differences, ledger. Nothing is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from spade.files import atomic_write, read_jsonl, write_json
from spade.report.curves import RunSeries, draw_curves
from spade.report.markdown import write_report
from spade_evals import stats
from spade_evals.provenance import require_folder
from spade_evals.results import EvalRun, documents

if TYPE_CHECKING:
    import pandas as pd

    from spade_evals.compare import CompareReport, Row

HEADINGS = {stats.SCORE: "mean"}
"""The score column is the mean of the parts."""


def heading(column: str) -> str:
    """A column's name for people: `a/easy` becomes `a easy`."""
    return HEADINGS.get(column, column.replace("/", " "))


def plus_minus(mean: float, stderr: float) -> str:
    """`0.412 ± 0.013`; without an error when there is none."""
    if math.isnan(mean):
        return "–"
    return f"{mean:.3f}" if math.isnan(stderr) else f"{mean:.3f} ± {stderr:.3f}"


def p_value(p: float) -> str:
    """A p-value with two digits; a dash for one that does not exist."""
    if math.isnan(p):
        return "–"
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def _runs_of(row: Row) -> str:
    return "–" if not row.seeds else ", ".join(str(seed) for seed in row.seeds)


def scores_frame(report: CompareReport) -> pd.DataFrame:
    """One line a row: label, training seeds, score ± standard error in every column."""
    import pandas as pd

    lines = []
    for row in report.rows:
        mark = "" if row.comparable else " (other protocol)"
        line = {"checkpoint": row.label + mark, "seeds": _runs_of(row)}
        line |= {heading(c): plus_minus(*row.cells[c]) for c in report.columns}
        lines.append(line)
    return pd.DataFrame(lines)


def differences_frame(report: CompareReport) -> pd.DataFrame:
    """One line a comparison: difference to the reference, 95 % interval, test, and what it says."""
    import pandas as pd

    tests = {(row.label, column): test for row in report.rows for column, test in row.tests.items()}
    lines = []
    for c in report.comparisons:
        test = tests[c.name, c.column]
        lines.append(
            {
                "checkpoint": c.name,
                "column": heading(c.column),
                f"minus {c.reference}": f"{c.difference:+.3f}",
                "95 % interval": "–" if math.isnan(c.low) else f"[{c.low:+.3f}, {c.high:+.3f}]",
                "p (Holm)": p_value(test.p_holm),
                "gained/lost": f"{test.gained}/{test.lost}" if test.gained or test.lost else "–",
                "in words": c.words,
            }
        )
    return pd.DataFrame(lines)


def ledger_frame(report: CompareReport) -> pd.DataFrame:
    """What the training behind each row cost (mean over its runs); empty without any ledger."""
    import pandas as pd

    rows = [row for row in report.rows if row.ledger]
    keys = sorted({key for row in rows for key in row.ledger}, key=lambda k: (k != "total_tokens", k))
    lines = [{"checkpoint": r.label, **{k: f"{r.ledger.get(k, 0):,.0f}" for k in keys}} for r in rows]
    frame = pd.DataFrame(lines)
    return frame.set_index("checkpoint").T.rename_axis("ledger").reset_index() if lines else frame


def _sections(report: CompareReport, style: str) -> list[tuple[str, str]]:
    from tabulate import tabulate

    frames = [
        (f"Scores on {report.suite} (± standard error)", scores_frame(report)),
        (f"Paired differences to {report.reference} on the same items", differences_frame(report)),
        ("Sampled tokens and plays spent in training", ledger_frame(report)),
    ]
    out = []
    for title, frame in frames:
        if not frame.empty:
            cells = frame.to_numpy().tolist()
            table = tabulate(cells, list(frame.columns), tablefmt=style, disable_numparse=True)
            out.append((title, table))
    return out


def to_terminal(report: CompareReport) -> str:
    """The whole comparison as plain text."""
    blocks = [f"{title}\n\n{table}" for title, table in _sections(report, "simple")]
    if report.problems:
        blocks.append("Notes\n\n" + "\n".join(f"- {p}" for p in report.problems))
    if report.files:
        blocks.append("\n".join(f"{name}: {path}" for name, path in report.files.items()))
    return "\n\n".join(blocks)


def to_markdown(report: CompareReport) -> str:
    """The whole comparison as Markdown, headings at level 3."""
    blocks = [f"### {title}\n\n{table}" for title, table in _sections(report, "github")]
    if report.problems:
        blocks.append("### Notes\n\n" + "\n".join(f"- {p}" for p in report.problems))
    return "\n\n".join(blocks) + "\n"


def to_csv(report: CompareReport) -> str:
    """One line per row and column, full precision."""
    import pandas as pd

    contrasts = {(c.name, c.column): c for c in report.comparisons}
    lines = []
    for row in report.rows:
        for column in report.columns:
            c, test = contrasts.get((row.label, column)), row.tests.get(column)
            score, stderr = row.cells[column]
            lines.append(
                {
                    "checkpoint": row.label,
                    "column": column,
                    "score": score,
                    "stderr": stderr,
                    "runs": row.runs,
                    "reference": c.reference if c else None,
                    "difference": c.difference if c else None,
                    "low": c.low if c else None,
                    "high": c.high if c else None,
                    "n": c.n if c else None,
                    "p": test.p if test else None,
                    "p_holm": test.p_holm if test else None,
                    "words": c.words if c else None,
                }
            )
    return str(pd.DataFrame(lines).to_csv(index=False))


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
        points = {}
        if start is not None and start.fingerprint == run.fingerprint and run.origin.model == start.ref:
            points[0.0] = (float(start.score[0] or 0.0), float(start.score[1] or 0.0))
        trees = [tree for _, tree in documents(folder)] if folder.is_dir() else []
        for tree in trees:
            mean, stderr, _ = tree["result"]["score"]
            tokens = tree["origin"].get("tokens")
            if tree["fingerprint"] == run.fingerprint and None not in (mean, tokens):
                points[float(tokens)] = (mean, stderr or 0.0)
        if run.origin.tokens is not None and run.score[0] is not None:
            points[run.origin.tokens] = (run.score[0], run.score[1] or 0.0)
        rows = read_jsonl(folder / "metrics.jsonl")
        scores = tuple((tokens, *score) for tokens, score in sorted(points.items()))
        out.append(RunSeries(run.label, run.seed, tuple(rows), scores))
    return out


def write_outputs(report: CompareReport, runs: Sequence[EvalRun], out: Path) -> CompareReport:
    """Write `compare.{md,csv,json,txt}`, `report.md` and, if any run has metrics, `curves.png`."""
    require_folder(out)
    atomic_write(out / "compare.md", to_markdown(report))
    atomic_write(out / "compare.csv", to_csv(report))
    atomic_write(out / "compare.txt", to_terminal(report) + "\n")
    write_json(out / "compare.json", report)
    names = {f"compare.{kind}": str(out / f"compare.{kind}") for kind in ("md", "csv", "txt", "json")}
    series = series_of(runs)
    curves = draw_curves(series, out / "curves.png") if series else None
    if curves is not None:
        names["curves.png"] = str(curves)
    folders = {run.folder for run in runs if run.folder is not None}
    path = write_report(
        out / "report.md",
        title=f"Comparison on {report.suite}",
        claims=claims(report),
        comparison=to_markdown(report),
        curves=curves,
        runs=sorted(folders),
    )
    return replace(report, files={**names, "report.md": str(path)})
