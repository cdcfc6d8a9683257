"""`spade report`: runs as one HTML file that opens from disk and loads nothing.

Model-written text is hostile. It reaches the page in two ways only: through Jinja with autoescaping, and as
JSON whose `<` and `&` are escaped and which the script turns into text nodes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade.files import atomic_write, make_folder
from spade.report.charts import charts
from spade.report.run_data import ENDS, RunData

PAGE = Path(__file__).with_name("page")
Tables = Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]]
"""(title, column names, rows)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tables and claims of a comparison; without tables, `missing` says what would make one."""

    tables: Tables = ()
    claims: Sequence[str] = ()
    missing: str = "No evaluation lies in these runs."


def page(runs: Sequence[RunData], comparison: Comparison, live: str = "") -> str:
    """The page. `live` is a version that a served page asks for, empty for a file."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(PAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    shown = [
        {"label": run.label, "overview": run.overview, "charts": charts(run.metrics, run.scores)}
        for run in runs
    ]
    return environment.get_template("report.html.j2").render(
        title=" and ".join(run.label for run in runs) if len(runs) < 3 else f"{len(runs)} runs",
        runs=shown,
        claims=list(comparison.claims) or [_claim(run) for run in runs],
        tables=comparison.tables,
        no_comparison=comparison.missing,
        ends=ENDS,
        live=live,
        css=(PAGE / "report.css").read_text(encoding="utf-8"),
        js=(PAGE / "report.js").read_text(encoding="utf-8"),
        data=_json([_browsed(run) for run in runs]),
    )


def write_page(path: Path, runs: Sequence[RunData], comparison: Comparison) -> Path:
    """Write the page to `path`, atomically; folders above it are made."""
    make_folder(path.parent)
    atomic_write(path, page(runs, comparison))
    return path


def _browsed(run: RunData) -> dict[str, Any]:
    """What the script shows on demand."""
    return {
        "programs": run.programs,
        "pairs": run.pairs,
        "rejected": run.rejected,
        "left_out": run.left_out,
    }


def _json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _claim(run: RunData) -> str:
    """One sentence from the run's own metrics, saying what it is not."""
    first, last = run.overview["ends"].get("return_plain", (None, None))
    if first is None or last is None:
        return f"{run.label}: no plays yet."
    return (
        f"{run.label}: plain return in training went from {first:.3f} (first {ENDS} steps) to {last:.3f} "
        f"(last {ENDS}); programs change on the way, so this is no measure of progress."
    )
