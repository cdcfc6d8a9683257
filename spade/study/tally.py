"""What every cell counts while it trains, and the part of its summary that follows from that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

SUCCESS: Final = 0.5
"""Final mass from which a run counts as a success."""


class Step(Protocol):
    """What one training step saw."""

    @property
    def hits(self) -> int:
        """Right responses."""

    @property
    def rewarded(self) -> int:
        """Responses with a reward above 0."""

    @property
    def silent(self) -> int:
        """Groups without any advantage."""

    @property
    def groups(self) -> int:
        """Groups."""


@dataclass
class Tally:
    """Counts over the steps so far, and the rows measured."""

    rows: list[dict[str, float]] = field(default_factory=list)
    steps: int = 0
    hits: int = 0
    rewarded: int = 0
    silent: int = 0
    groups: int = 0
    first_hit: int | None = None

    def count(self, step: int, stats: Step) -> None:
        """Count one training step."""
        self.steps = step
        self.hits += stats.hits
        self.rewarded += stats.rewarded
        self.silent += stats.silent
        self.groups += stats.groups
        if stats.hits and self.first_hit is None:
            self.first_hit = step

    def row(self) -> dict[str, float]:
        """The counts that stand in every row."""
        return {"hits": self.hits, "silent_groups": self.silent, "groups": self.groups}

    def summary(self) -> dict[str, Any]:
        """Counts, first and last row, and when the mass took off; needs a row."""
        first, last = self.rows[0], self.rows[-1]
        peak = max(self.rows, key=lambda r: r["H_seq"])
        return {
            "start": {k: first[k] for k in first if k != "step"},
            "end": {k: last[k] for k in last if k != "step"},
            "p0": first.get("mass_rollout", first["mass"]),
            "hits": self.hits,
            "rewarded": self.rewarded,
            "silent_groups": self.silent,
            "groups": self.groups,
            "first_hit": self.first_hit,
            "steps": self.steps,
            "success": last["mass"] >= SUCCESS,
            "takeoff": next((r["step"] for r in self.rows if r["mass"] >= SUCCESS), None),
            "H_peak": peak["H_seq"],
            "H_peak_step": peak["step"],
        }
