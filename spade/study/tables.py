"""What a table of the study is: Markdown and CSV, numbers as text, and the one table every experiment has."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from spade.files import atomic_write
from spade.study.stats import wilson
from spade.study.verdicts import Run, chosen

Row = Sequence[str]


@dataclass(frozen=True)
class Table:
    """One table; `reference` rows come last, under a line that says whose they are."""

    name: str
    title: str
    header: Row
    rows: Sequence[Row]
    reference: Sequence[Row] = ()
    notes: str = ""

    def markdown(self) -> str:
        """A heading, the table and its notes."""
        lines = [f"### {self.title}", "", _line(self.header), _line(["---"] * len(self.header))]
        lines += [_line(row) for row in self.rows]
        if self.reference:
            width = len(self.header)
            lines.append(_line(["*original, for comparison*", *[""] * (width - 1)]))
            lines += [_line([f"*{row[0]}*", *row[1:], *[""] * (width - len(row))]) for row in self.reference]
        return "\n".join([*lines, *(["", self.notes] if self.notes else []), ""])

    def write(self, folder: Path) -> None:
        """`NAME.md` and `NAME.csv`."""
        atomic_write(folder / f"{self.name}.md", self.markdown())
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(["source", *self.header])
        writer.writerows(["study", *row] for row in self.rows)
        writer.writerows(["original", *row] for row in self.reference)
        atomic_write(folder / f"{self.name}.csv", buffer.getvalue())


def _line(cells: Row) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


# --- numbers as text -------------------------------------------------------------------------------------


def num(value: float | None) -> str:
    """Three significant digits; a dash for nothing."""
    return "–" if value is None or value != value else f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """Mean, and all values in brackets when there are several."""
    if not values:
        return "–"
    shown = f" ({', '.join(num(v) for v in values)})" if 1 < len(values) <= 6 else ""
    return f"{num(float(np.mean(values)))}{shown}"


def rate(runs: Sequence[Run]) -> str:
    """`4/5 [0.38, 0.96]`, Wilson's interval."""
    interval = wilson(sum(r.success for r in runs), len(runs))
    return f"{sum(r.success for r in runs)}/{len(runs)} [{interval.low:.2f}, {interval.high:.2f}]"


def start(key: str) -> Callable[[Run], float]:
    """A metric at the start."""
    return lambda r: float(r.summary["start"][key])


def end(key: str) -> Callable[[Run], float]:
    """A metric at the end."""
    return lambda r: float(r.summary["end"][key])


def of(key: str) -> Callable[[Run], float]:
    """A figure of the whole run."""
    return lambda r: float(r.summary[key])


def mean(runs: Sequence[Run], value: Callable[[Run], float]) -> str:
    """The mean as text."""
    return num(average(runs, value))


def every(runs: Sequence[Run], value: Callable[[Run], float]) -> str:
    """Mean and all values as text."""
    return spread([value(r) for r in runs])


def levels(runs: Sequence[Run], factor: str) -> list[str]:
    """Levels of a factor in the order in which they were planned."""
    return list(dict.fromkeys(r.labels[factor] for r in runs))


def cells_of(runs: Sequence[Run]) -> list[tuple[dict[str, str], list[Run]]]:
    """Runs by combination of levels, those without runs left out."""
    factors = list(runs[0].labels) if runs else []
    out = []
    for combination in product(*(levels(runs, f) for f in factors)):
        labels = dict(zip(factors, combination, strict=True))
        if here := chosen(runs, **labels):
            out.append((labels, here))
    return out


def general(name: str, title: str, runs: Sequence[Run]) -> Table:
    """What every experiment has: one row for each combination of levels."""
    factors = list(runs[0].labels)
    header = [
        *factors, "runs", "success (mass >= .5)", "mass, start", "mass, end", "H_seq, start", "H_seq, end",
        "outside known behaviours", "KL to start", "other domains, end",
    ]  # fmt: skip
    rows = []
    for labels, here in cells_of(runs):
        others = [r.summary["end"]["others"] for r in here if "others" in r.summary["end"]]
        rows.append(
            [
                *labels.values(), str(len(here)), rate(here),
                mean(here, start("mass")), every(here, end("mass")), mean(here, start("H_seq")),
                mean(here, end("H_seq")), mean(here, end("other")), mean(here, end("KL")), spread(others),
            ]
        )  # fmt: skip
    return Table(name, title, header, rows)


def average(runs: Sequence[Run], value: Callable[[Run], float]) -> float:
    """The mean over runs; NaN without any."""
    return float(np.mean([value(r) for r in runs])) if runs else float("nan")
