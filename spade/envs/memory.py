"""Environment memory: earlier programs with their outcome, shown to the Designer as exemplars.

Programs whose mean return lies in the learnable range are shown as examples to go on from, the ones with
the highest lower bound of the regret first; those far outside, and rejected ones, with the reason. When the
memory is full the oldest record leaves. Near-duplicates are remembered once. Drawing is deterministic under
its generator (arXiv 2608.19197, section on environment memory).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from spade.config import MemoryConfig
from spade.envs.fingerprint import shingles
from spade.envs.outline import outline

__all__ = ["Exemplar", "Memory", "Record", "outline", "show_exemplar", "similarity"]

POSITIVE_RANGE = (0.15, 0.85)
"""Mean returns of programs worth going on from."""
NEGATIVE_RANGE = (0.1, 0.9)
"""Mean returns outside of this are too hard or too easy."""
MIN_SHORTLIST = 10
"""Positives are drawn from at least this many of the best, so that one program does not dominate."""
UNKNOWN_STDERR = 1.0
"""Standard error assumed of a regret measured on a single pair: as large as returns in [0, 1] allow."""


@dataclass(frozen=True, slots=True)
class Record:
    """One remembered program with what its first plays showed.

    `solve_rate` is the share of plays with a positive return, `mean_return` their mean without a hint; both
    are None for a rejected program, whose reason is in `verdict` (a code) and `detail`. `regret` is None when
    there was no hinted arm; standard errors are None where one play or pair leaves them unknown.
    """

    program_id: str
    code: str
    skill: str
    solve_rate: float | None
    mean_return: float | None
    regret: float | None
    step: int
    return_stderr: float | None = None
    regret_stderr: float | None = None
    turns: float | None = None
    verdict: str = "accepted"
    detail: str = ""

    @property
    def rejected(self) -> bool:
        """Whether the validator refused the program."""
        return self.verdict != "accepted"

    def regret_bound(self, z: float) -> float:
        """Regret less `z` standard errors; minus infinity where it was not measured."""
        if self.regret is None:
            return -math.inf
        return self.regret - z * (UNKNOWN_STDERR if self.regret_stderr is None else self.regret_stderr)


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A record as shown in a brief.

    `label` says in a few words why it is shown and `reason` in a sentence; `outcome` are its figures;
    `text` is the program or its outline.
    """

    program_id: str
    skill: str
    label: str
    mean_return: float | None
    regret: float | None
    text: str
    outcome: str = ""
    reason: str = ""


class Memory:
    """At most `capacity` records, oldest out first."""

    def __init__(self, cfg: MemoryConfig) -> None:
        self.cfg = cfg
        self.records: list[Record] = []
        self._shingles: dict[str, frozenset[int]] = {}  # by code

    def add(self, record: Record) -> bool:
        """Remember a program in the place of its near-duplicates; returns whether it was remembered.

        A rejected one is not remembered if it resembles one that was played, or when the config says none.
        """
        record = _finite(record)
        twins = {r.program_id for r in self.records if self._alike(r, record)}
        if record.rejected:
            played = any(r.program_id in twins and not r.rejected for r in self.records)
            if played or not self.cfg.rejected:
                return False
        self.records = [r for r in self.records if r.program_id not in twins] + [record]
        self._evict()
        return True

    def nearest(self, code: str) -> float:
        """Similarity in [0, 1] of a program to the nearest one that was played; 0 when there is none."""
        mine = shingles(code)
        played = (r for r in self.records if not r.rejected)
        return max((similarity(mine, self._of(r)) for r in played), default=0.0)

    def draw(self, skill: str, rng: random.Random, count: Callable[[str], int]) -> tuple[Exemplar, ...]:
        """Exemplars of one skill; `count` gives the tokens of a text. Empty when the memory is off."""
        if not self.cfg.enabled:
            return ()
        mine = [r for r in self.records if r.skill == skill]
        chosen = self._positives(mine, rng) + self._negatives(mine, rng)
        shown: list[Exemplar] = []
        left = self.cfg.tokens
        for number, record in enumerate(chosen):
            shown.append(show_exemplar(record, left // (len(chosen) - number), count))
            left -= count(shown[-1].text)
        return tuple(shown)

    def state_dict(self) -> dict[str, Any]:
        """All records, oldest first."""
        return {"records": [asdict(r) for r in self.records]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.records = [Record(**r) for r in state["records"]]
        self._shingles = {}

    def metrics(self) -> dict[str, float]:
        """Numbers of records, and of rejected programs among them."""
        rejected = sum(r.rejected for r in self.records)
        return {"memory/records": float(len(self.records)), "memory/rejected": float(rejected)}

    # --- inside ----------------------------------------------------------------------------------------

    def _positives(self, mine: list[Record], rng: random.Random) -> list[Record]:
        low, high = POSITIVE_RANGE
        played = [r for r in mine if not r.rejected and r.mean_return is not None]
        good = [r for r in played if r.mean_return is not None and low <= r.mean_return <= high]
        good.sort(key=lambda r: (-r.regret_bound(self.cfg.regret_z), r.program_id))
        shortlist = good[: max(3 * self.cfg.positives, MIN_SHORTLIST)]
        return rng.sample(shortlist, min(self.cfg.positives, len(shortlist)))

    def _negatives(self, mine: list[Record], rng: random.Random) -> list[Record]:
        """Played and rejected ones with equal chance, however many there are of each."""
        low, high = NEGATIVE_RANGE
        rejected = [r for r in mine if r.rejected]
        played = [r for r in mine if r.mean_return is not None and not r.rejected]
        kinds = [[r for r in played if not low <= r.mean_return <= high], rejected]  # type: ignore[operator]
        chosen: list[Record] = []
        while len(chosen) < self.cfg.negatives and (open_kinds := [k for k in kinds if k]):
            kind = rng.choice(open_kinds)
            chosen.append(kind.pop(rng.randrange(len(kind))))
        return chosen

    def _alike(self, old: Record, new: Record) -> bool:
        if old.program_id == new.program_id:
            return True
        return similarity(self._of(old), self._of(new)) >= self.cfg.near_duplicate

    def _of(self, record: Record) -> frozenset[int]:
        if record.code not in self._shingles:
            self._shingles[record.code] = shingles(record.code)
        return self._shingles[record.code]

    def _evict(self) -> None:
        rejected = [r for r in self.records if r.rejected]
        gone = {r.program_id for r in rejected[: max(0, len(rejected) - self.cfg.rejected)]}
        self.records = [r for r in self.records if r.program_id not in gone]
        del self.records[: max(0, len(self.records) - self.cfg.capacity)]
        kept = {r.code for r in self.records}
        self._shingles = {code: runs for code, runs in self._shingles.items() if code in kept}


def similarity(a: frozenset[int], b: frozenset[int]) -> float:
    """Jaccard index of two sets of token runs: 1 for equal sets, 0 for disjoint ones."""
    union = len(a | b)
    return len(a & b) / union if union else 1.0


def show_exemplar(record: Record, budget: int, count: Callable[[str], int]) -> Exemplar:
    """One record as a brief shows it: the program if it is good and fits `budget` tokens, else an outline."""
    label, reason = _why(record)
    outcome = _outcome(record)
    whole = label == GOOD and count(record.code) <= budget
    text = record.code if whole else _fit(_summary(record, outcome), budget, count)
    return Exemplar(
        record.program_id, record.skill, label, record.mean_return, record.regret, text, outcome, reason
    )


GOOD = "a good game"


def _why(record: Record) -> tuple[str, str]:
    """Label and reason of a record, in words."""
    if record.rejected:
        words = record.verdict.replace("_", " ")
        return f"rejected, {words}", f"The validator refused it: {record.detail or words}"
    mean = record.mean_return if record.mean_return is not None else 0.5
    if mean > NEGATIVE_RANGE[1]:
        return "too easy", f"Players win it without a hint ({mean:.2f} on average), so it teaches nothing."
    if mean < NEGATIVE_RANGE[0]:
        helped = record.regret is not None and record.regret > NEGATIVE_RANGE[0]
        how = "only a hint opens it" if helped else "a hint does not help either"
        return "too hard", f"Players hardly ever win it ({mean:.2f} on average); {how}."
    return GOOD, ""


def _outcome(record: Record) -> str:
    """The figures of a record: return, regret and turns with their standard errors."""
    parts = []
    if record.mean_return is not None:
        parts.append(f"mean return {record.mean_return:.2f}{_error(record.return_stderr)}")
    if record.regret is not None:
        parts.append(f"gain from a hint {record.regret:.2f}{_error(record.regret_stderr)}")
    if record.turns is not None:
        parts.append(f"{record.turns:.1f} turns")
    return ", ".join(parts)


def _error(stderr: float | None) -> str:
    return "" if stderr is None else f" ± {stderr:.2f}"


def _summary(record: Record, outcome: str) -> str:
    """The outline with the outcome as its second line."""
    first, *rest = outline(record.code).split("\n")
    lines = [first, f"outcome: {outcome}" if outcome else "", *rest]
    return "\n".join(line for line in lines if line)


def _fit(text: str, budget: int, count: Callable[[str], int]) -> str:
    """As many leading lines as the budget allows."""
    lines = text.split("\n")
    while lines and count("\n".join(lines)) > budget:
        lines.pop()
    return "\n".join(lines)


def _finite(record: Record) -> Record:
    """The record without NaN, which stands for an unknown error and has no word in JSON."""
    names = ("regret", "return_stderr", "regret_stderr", "turns")
    unknown: dict[str, Any] = {
        n: None for n in names if (v := getattr(record, n)) is not None and not math.isfinite(v)
    }
    return replace(record, **unknown) if unknown else record
