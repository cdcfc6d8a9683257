"""Where a run came from, and what evaluations found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from spade.types_play import Outcome


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Provenance of one run; written as `run.json` and copied to `results/records/` when published."""

    id: str
    kind: str
    command: str
    config: dict[str, Any]
    digest: str
    seed: int
    versions: dict[str, str]
    hardware: dict[str, Any]
    data: dict[str, str]
    sandbox_level: str
    started: str
    status: str = "running"
    parents: tuple[str, ...] = ()
    artefacts: dict[str, str] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)
    ledger: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Item:
    """One evaluation item: stable id, the part of the suite it belongs to, and its cluster."""

    id: str
    part: str
    cluster: str
    payload: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ItemResult:
    """One sample of one item."""

    item_id: str
    part: str
    cluster: str
    sample: int
    outcome: Outcome
    end: str
    tokens: int
    text: str = ""
    facts: dict[str, float] = field(default_factory=dict)
    """Numbers about the item besides its value, such as the turns it took; the suite says what they mean."""


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """One suite on one checkpoint. `parts` maps a part to (mean, standard error, n); `score` likewise."""

    suite: str
    checkpoint: str
    protocol: str
    score: tuple[float, float, int]
    parts: dict[str, tuple[float, float, int]]
    faults: dict[str, int]
    tokens: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One checkpoint against a reference on the same items: paired difference and its 95 % interval."""

    name: str
    reference: str
    column: str
    score: float
    stderr: float
    difference: float
    low: float
    high: float
    n: int
    words: str
