"""Environment memory: earlier programs with their outcome, shown to the Designer as exemplars.

Programs in the learnable range are shown as examples to go on from, those far outside with the reason. When
the memory is full the oldest record leaves. Drawing is deterministic under its generator.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from spade.config import MemoryConfig

POSITIVE_RANGE = (0.15, 0.85)
"""Solve rates of programs worth going on from."""
NEGATIVE_RANGE = (0.1, 0.9)
"""Solve rates outside of this are too hard or too easy."""
MIN_SHORTLIST = 10
"""Positives are drawn from at least this many of the best, so that one program does not dominate."""


@dataclass(frozen=True, slots=True)
class Record:
    """One remembered program. `regret` is None when it had no hinted arm."""

    program_id: str
    code: str
    skill: str
    solve_rate: float
    mean_return: float
    regret: float | None
    step: int


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A record as shown in a brief: `label` says why, `text` the program or its outline, cut to a budget."""

    program_id: str
    skill: str
    label: str
    mean_return: float
    regret: float | None
    text: str


class Memory:
    """At most `capacity` records, oldest out first."""

    def __init__(self, cfg: MemoryConfig) -> None:
        self.cfg = cfg
        self.records: list[Record] = []

    def add(self, record: Record) -> None:
        """Remember a program; a record of the same program is replaced."""
        self.records = [r for r in self.records if r.program_id != record.program_id] + [record]
        del self.records[: max(0, len(self.records) - self.cfg.capacity)]

    def draw(self, skill: str, rng: random.Random, count: Callable[[str], int]) -> tuple[Exemplar, ...]:
        """Exemplars of one skill; `count` gives the tokens of a text. Empty when the memory is off."""
        if not self.cfg.enabled:
            return ()
        mine = [r for r in self.records if r.skill == skill]
        good = [r for r in mine if POSITIVE_RANGE[0] <= r.solve_rate <= POSITIVE_RANGE[1]]
        good.sort(key=lambda r: (-(r.regret or 0.0), r.program_id))
        shortlist = good[: max(3 * self.cfg.positives, MIN_SHORTLIST)]
        bad = [r for r in mine if not NEGATIVE_RANGE[0] <= r.solve_rate <= NEGATIVE_RANGE[1]]
        chosen = rng.sample(shortlist, min(self.cfg.positives, len(shortlist)))
        worst = rng.sample(bad, min(self.cfg.negatives, len(bad)))
        share = self.cfg.tokens // max(1, len(chosen) + len(worst))
        return tuple(show_exemplar(r, share, count) for r in chosen + worst)

    def state_dict(self) -> dict[str, Any]:
        """All records, oldest first."""
        return {"records": [asdict(r) for r in self.records]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.records = [Record(**r) for r in state["records"]]

    def metrics(self) -> dict[str, float]:
        """Number of records."""
        return {"memory/records": float(len(self.records))}


def show_exemplar(record: Record, budget: int, count: Callable[[str], int]) -> Exemplar:
    """One record as a brief shows it: the program if it is good and fits `budget` tokens, else an outline."""
    if record.solve_rate > NEGATIVE_RANGE[1]:
        label = "too easy"
    elif record.solve_rate < NEGATIVE_RANGE[0]:
        label = "too hard"
    else:
        label = "a good game"
    whole = label == "a good game" and count(record.code) <= budget
    text = record.code if whole else _fit(outline(record.code), budget, count)
    return Exemplar(record.program_id, record.skill, label, record.mean_return, record.regret, text)


def _fit(text: str, budget: int, count: Callable[[str], int]) -> str:
    """As many leading lines as the budget allows."""
    lines = text.split("\n")
    while lines and count("\n".join(lines)) > budget:
        lines.pop()
    return "\n".join(lines)


def outline(code: str) -> str:
    """Class name, docstring, methods and the texts of a program: what kind of game it is, in a few lines."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    lines: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            lines.append(f"class {node.name}: {(ast.get_docstring(node) or '').strip()}".rstrip(": "))
            methods = [m.name for m in node.body if isinstance(m, ast.FunctionDef)]
            lines.append(f"methods: {', '.join(methods)}")
    texts = [
        n.value.strip()
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and len(n.value.split()) > 2
    ]
    lines.extend(f"text: {t}" for t in dict.fromkeys(texts))
    return "\n".join(lines)
