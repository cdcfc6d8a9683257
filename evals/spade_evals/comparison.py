"""What a comparison of evaluated checkpoints consists of; `compare` makes it, `render` prints it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from spade.types import Comparison
from spade_evals import stats
from spade_evals.published import PublishedRow

MATCHED = ("total_tokens", "tokens_trained", "plays_plain")
"""What a budget can make equal, as the ledger calls it."""
NEAR = 0.05
"""Largest relative difference of two budgets that counts as none: a run ends with the step that spends it."""


@dataclass(frozen=True, slots=True)
class ItemChange:
    """One item whose value differs from the reference's."""

    item_id: str
    part: str
    difference: float


@dataclass(frozen=True, slots=True)
class Test:
    """Significance of one difference. `gained` and `lost` count items solved by only one side (one run);
    `detectable` is the smallest true difference that would be found 4 times in 5 (NaN for few seeds)."""

    kind: str
    p: float
    p_holm: float
    gained: int
    lost: int
    detectable: float


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `cells` maps a column to (score, standard error)."""

    label: str
    seeds: tuple[int, ...]
    runs: int
    comparable: bool
    cells: dict[str, tuple[float, float]]
    faults: int
    ledger: dict[str, float]
    tests: dict[str, Test] = field(default_factory=dict)
    """By column; empty for the reference and for rows that cannot be compared."""
    gained: tuple[ItemChange, ...] = ()
    """Items better than at the reference, the largest change first (of several runs: their mean)."""
    lost: tuple[ItemChange, ...] = ()
    """Items worse than there, the largest change first."""


def unequal_budgets(rows: Sequence[Row]) -> list[str]:
    """A note when the training behind the rows is equal in nothing of `MATCHED`; none when it is."""
    spent = {row.label: row.ledger for row in rows if row.ledger}
    for key in MATCHED:
        values = [ledger.get(key, 0.0) for ledger in spent.values()]
        if len(values) < 2 or 0 < max(values) <= (1 + NEAR) * min(values):
            return []
    sums = ", ".join(f"{label} {ledger.get(MATCHED[0], 0.0):,.0f}" for label, ledger in spent.items())
    return [f"the rows did not spend the same, so a difference may come from the budget: {sums} tokens"]


@dataclass(frozen=True, slots=True)
class CompareReport:
    """Everything the tables show; `str()` is the terminal text, `spade.files.plain` the JSON."""

    suite: str
    reference: str
    fingerprint: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    comparisons: tuple[Comparison, ...]
    problems: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)
    published: tuple[PublishedRow, ...] = ()
    """Rows from the literature, for reading beside ours; nothing is compared with them."""

    def __str__(self) -> str:
        from spade_evals.render import to_terminal

        return to_terminal(self)

    def comparison(self, name: str, column: str = stats.SCORE) -> Comparison:
        """The comparison of one row in one column. Raises KeyError when there is none."""
        for item in self.comparisons:
            if (item.name, item.column) == (name, column):
                return item
        raise KeyError((name, column))


@dataclass(frozen=True, slots=True)
class CompareList:
    """Comparisons on several suites; `files` holds what was written for all of them."""

    reports: tuple[CompareReport, ...]

    def __str__(self) -> str:
        return "\n\n".join(f"=== {report.suite} ===\n\n{report}" for report in self.reports)
