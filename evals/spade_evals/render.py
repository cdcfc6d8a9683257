"""Print a comparison: terminal, Markdown, LaTeX, HTML and CSV.

All formats but CSV come from the same frames: scores, differences, changed items, ledger, published rows.
Nothing is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from spade_evals import stats

if TYPE_CHECKING:
    import pandas as pd

    from spade_evals.comparison import CompareReport, Row

HEADINGS = {stats.SCORE: "mean"}
"""The score column is the mean of the parts."""


MOST_CHANGES = 10
MOST_CHANGES_PAGE = 200
LATEX = {"±": "$\\pm$", "–": "--"}
"""What `tabulate` leaves as it is and old engines cannot print."""


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
                "detectable": "–" if math.isnan(test.detectable) else f"{test.detectable:.3f}",
                "gained/lost": f"{test.gained}/{test.lost}" if test.gained or test.lost else "–",
                "in words": c.words,
            }
        )
    return pd.DataFrame(lines)


def changes_frame(report: CompareReport, most: int = MOST_CHANGES) -> pd.DataFrame:
    """The items that changed most, on either side: at most `most` gained and `most` lost of each row."""
    import pandas as pd

    lines = []
    for row in report.rows:
        for word, changes in (("gained", row.gained), ("lost", row.lost)):
            for change in changes[:most]:
                lines.append(
                    {
                        "checkpoint": row.label,
                        "item": change.item_id,
                        "column": heading(change.part),
                        "": word,
                        f"minus {report.reference}": f"{change.difference:+.3f}",
                    }
                )
    return pd.DataFrame(lines)


def published_frame(report: CompareReport) -> pd.DataFrame:
    """Published rows of the suite, in the columns of the comparison that they have."""
    import pandas as pd

    rows = report.published
    columns = [c for c in report.columns if any(c in row.scores for row in rows)]
    return pd.DataFrame(
        [
            {"published row": row.label}
            | {heading(c): f"{row.scores[c]:.3f}" if c in row.scores else "–" for c in columns}
            | {"source": row.source}
            for row in rows
        ]
    )


def ledger_frame(report: CompareReport) -> pd.DataFrame:
    """What the training behind each row cost (mean over its runs); empty without any ledger."""
    import pandas as pd

    rows = [row for row in report.rows if row.ledger]
    keys = sorted({key for row in rows for key in row.ledger}, key=lambda k: (k != "total_tokens", k))
    lines = [{"checkpoint": r.label, **{k: f"{r.ledger.get(k, 0):,.0f}" for k in keys}} for r in rows]
    frame = pd.DataFrame(lines)
    return frame.set_index("checkpoint").T.rename_axis("ledger").reset_index() if lines else frame


def frames(report: CompareReport) -> list[tuple[str, pd.DataFrame]]:
    """Title and frame of everything there is to show."""
    found = [
        (f"Scores on {report.suite} (± standard error)", scores_frame(report)),
        ("Published scores (other harness, other checkpoints)", published_frame(report)),
        (f"Paired differences to {report.reference} on the same items", differences_frame(report)),
        ("Sampled tokens and plays spent in training", ledger_frame(report)),
    ]
    return [(title, frame) for title, frame in found if not frame.empty]


def _table(frame: pd.DataFrame, style: str) -> str:
    from tabulate import tabulate

    return tabulate(frame.to_numpy().tolist(), list(frame.columns), tablefmt=style, disable_numparse=True)


def to_terminal(report: CompareReport) -> str:
    """The whole comparison as plain text."""
    blocks = [f"{title}\n\n{_table(frame, 'simple')}" for title, frame in frames(report)]
    if report.problems:
        blocks.append("Notes\n\n" + "\n".join(f"- {p}" for p in report.problems))
    if report.files:
        blocks.append("\n".join(f"{name}: {path}" for name, path in report.files.items()))
    return "\n\n".join(blocks)


def to_markdown(report: CompareReport) -> str:
    """The whole comparison as Markdown, headings at level 3."""
    blocks = [f"### {title}\n\n{_table(frame, 'github')}" for title, frame in frames(report)]
    changed = changes_frame(report)
    if not changed.empty:
        title = f"### Items that changed most (at most {MOST_CHANGES} each way; all of them in compare.json)"
        blocks.append(f"{title}\n\n{_table(changed, 'github')}")
    if report.problems:
        blocks.append("### Notes\n\n" + "\n".join(f"- {p}" for p in report.problems))
    return "\n\n".join(blocks) + "\n"


def to_latex(report: CompareReport) -> str:
    """The frames as tables in the style of `booktabs`, each after a comment with its title."""
    blocks = ["% needs \\usepackage{booktabs}"]
    for title, frame in frames(report):
        block = f"% {title}\n{_table(frame, 'latex_booktabs')}"
        for sign, command in LATEX.items():
            block = block.replace(sign, command)
        blocks.append(block)
    return "\n\n".join(blocks) + "\n"


def to_html(report: CompareReport, pictures: Mapping[str, Path]) -> str:
    """One page that loads nothing: the frames, the changed items, the pictures (PNG) by caption."""
    import base64

    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    shown = frames(report)
    changed = changes_frame(report, MOST_CHANGES_PAGE)
    if not changed.empty:
        shown.append(("Items that changed most", changed))
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("compare.html.j2").render(
        report=report,
        frames=[(title, list(frame.columns), frame.to_numpy().tolist()) for title, frame in shown],
        pictures={name: base64.b64encode(path.read_bytes()).decode() for name, path in pictures.items()},
    )


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
                    "detectable": test.detectable if test else None,
                    "words": c.words if c else None,
                }
            )
    return str(pd.DataFrame(lines).to_csv(index=False))
