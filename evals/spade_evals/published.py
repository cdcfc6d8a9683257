"""Published scores as reference rows: other checkpoints, measured by other people with another harness.

A file `results/published/NAME.json` holds one table: its source, the suite it belongs to, the unit, and rows
of scores by column. Such rows stand under a comparison and are marked; nothing is computed with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import spade_evals
from spade.errors import InputError
from spade.files import read_json

FORMAT = "spade-published-1"
UNITS = {"percent": 0.01, "fraction": 1.0}


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One row of a published table; scores are in [0, 1] by column, as far as they were given."""

    label: str
    source: str
    scores: dict[str, float]


def folder() -> Path:
    """Where the tables lie: beside the code in a checkout, inside the package elsewhere."""
    package = Path(spade_evals.__file__).parent
    checkout = package.parent.parent / "results" / "published"
    return checkout if checkout.is_dir() else package / "_published"


def published(suite: str, place: Path | None = None) -> list[PublishedRow]:
    """All rows for a suite, table by table. Raises InputError for a file that is no such table."""
    rows: list[PublishedRow] = []
    for file in sorted((place or folder()).glob("*.json")):
        rows += _rows(file, suite)
    return rows


def _rows(file: Path, suite: str) -> Sequence[PublishedRow]:
    tree = read_json(file, "table of published scores")
    try:
        if tree["format"] != FORMAT:
            raise ValueError(f"format {tree['format']}")
        unit, source = UNITS[tree["unit"]], str(tree["source"])
        if tree["suite"] != suite:
            return []
        return [
            PublishedRow(
                str(row["label"]), source, {c: round(float(s) * unit, 6) for c, s in row["scores"].items()}
            )
            for row in tree["rows"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{file} is no table of published scores ({error!r})") from error
