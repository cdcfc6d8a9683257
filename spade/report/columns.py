"""Columns of the live table and of the plain progress lines: one step's metrics as a few short cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]

ABSENT = "\N{EN DASH}"
PHASES = ("design", "hints", "play", "floor", "learn", "lens", "checkpoint")
"""Phases of the time split, in the order of a step."""
REASONS = 2
"""Most frequent rejection reasons named beside the accept rate."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: it is shown when a row has `key`; `text` renders a whole row's cell."""

    key: str
    head: str
    render: Callable[[Row], str]

    def text(self, row: Row) -> str:
        """The cell; a dash when the row lacks the metric or it is not a number."""
        value = row.get(self.key)
        return ABSENT if value is None or value != value else self.render(row)


def number(key: str, how: str) -> Callable[[Row], str]:
    """Renders one metric with a format; `d` formats cut to whole numbers."""
    return lambda row: format(int(row[key]) if how.endswith("d") else float(row[key]), how)


def _accepted(row: Row) -> str:
    """`62% (duplicate 5, syntax 2)`."""
    share = f"{float(row['accept_rate']):.0%}"
    counts = {k.removeprefix("rejected/"): int(v) for k, v in row.items() if k.startswith("rejected/")}
    worst = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:REASONS]
    return f"{share} ({', '.join(f'{code} {n}' for code, n in worst)})" if worst else share


def _regret(row: Row) -> str:
    """`+0.120 ±0.031`."""
    error = float(row.get("regret_stderr", float("nan")))
    known = f" \N{PLUS-MINUS SIGN}{error:.3f}" if error == error else ""
    return f"{float(row['regret']):+.3f}{known}"


def _regimes(row: Row) -> str:
    """`50/33/17`: percent of programs at the frontier, mastered, intractable."""
    names = ("frontier", "mastered", "intractable")
    return "/".join(f"{100 * float(row.get(f'share/{name}') or 0):.0f}" for name in names)


def _split(row: Row) -> str:
    """`learn 61 play 27 design 9`: percent of the step's time, the largest three phases."""
    total = float(row["seconds"]) or 1.0
    parts = {name: float(row.get(f"seconds/{name}") or 0.0) for name in PHASES}
    top = sorted(parts.items(), key=lambda item: -item[1])[:3]
    return " ".join(f"{name} {100 * value / total:.0f}" for name, value in top if value > 0)


COLUMNS = (
    Column("step", "step", number("step", "d")),
    Column("tokens_total", "tokens", number("tokens_total", ",d")),
    Column("return_plain", "plain", number("return_plain", ".3f")),
    Column("return_hinted", "hinted", number("return_hinted", ".3f")),
    Column("regret", "regret", _regret),
    Column("share/frontier", "front/mast/intract %", _regimes),
    Column("accept_rate", "accepted", _accepted),
    Column("distinct_designs", "distinct", number("distinct_designs", "d")),
    Column("seconds", "s/step", number("seconds", ".1f")),
    Column("seconds/learn", "time %", _split),
)
"""All columns; metrics a run does not have are left out."""


def shown_columns(rows: Sequence[Row]) -> list[Column]:
    """The columns that at least one row fills; the step always."""
    return [c for c in COLUMNS if c.key == "step" or any(row.get(c.key) is not None for row in rows)]
