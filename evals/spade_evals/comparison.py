"""What a comparison of evaluated checkpoints consists of; `compare` makes it, `render` prints it."""

from __future__ import annotations

from dataclasses import dataclass, field

from spade.types import Comparison
from spade_evals import stats
from spade_evals.published import PublishedRow


@dataclass(frozen=True, slots=True)
class ItemChange:
    """One item whose value differs from the reference's."""

    item_id: str
    part: str
    difference: float


@dataclass(frozen=True, slots=True)
class Test:
    """Significance of one difference. `gained` and `lost` count items solved by only one side (one run)."""

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
