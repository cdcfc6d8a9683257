"""What a run has spent: sampled tokens by purpose, plays, optimiser steps, seconds by phase.

Two runs are comparable only at equal cost, so everything the model samples is counted, whatever becomes of
it: rejected designs, refused hints, plays that end in a fault, and the tokens a ready-made pool cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, get_args

from spade.config import BudgetConfig
from spade.types import Episode

Purpose = Literal["design", "hint", "plain", "hinted", "pool_design"]
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
COUNTS = ("plays_plain", "plays_hinted", "designs", "accepted", "optimiser_steps", "tokens_trained")


class Ledger:
    """Running totals; part of every checkpoint. `watch` is entered with the name of each phase."""

    def __init__(self, watch: Callable[[str], AbstractContextManager[None]] | None = None) -> None:
        self.tokens: dict[str, int] = dict.fromkeys(PURPOSES, 0)
        self.counts: dict[str, int] = dict.fromkeys(COUNTS, 0)
        self.seconds: dict[str, float] = {}
        self._watch = watch or (lambda name: nullcontext())

    @property
    def total_tokens(self) -> int:
        """All sampled tokens."""
        return sum(self.tokens.values())

    def share_of(self, budget: BudgetConfig) -> float:
        """Spent share of the budget's limits, of the one nearest to its end; 0 without limits."""
        limits = (
            (self.total_tokens, budget.total_tokens),
            (self.counts["tokens_trained"], budget.train_tokens),
            (self.counts["plays_plain"], budget.train_plays),
        )
        return max((spent / limit for spent, limit in limits if limit), default=0.0)

    def sampled(self, purpose: Purpose, tokens: int) -> None:
        """Count sampled tokens."""
        self.tokens[purpose] += tokens

    def count(self, name: str, n: int = 1) -> None:
        """Count events such as plays."""
        self.counts[name] = self.counts.get(name, 0) + n

    def played(self, plain: Sequence[Episode], hinted: Sequence[Episode]) -> None:
        """Count the plays of one step and what was sampled in them."""
        self.count("plays_plain", len(plain))
        self.count("plays_hinted", len(hinted))
        self.sampled("plain", sum(e.sampled_tokens for e in plain))
        self.sampled("hinted", sum(e.sampled_tokens for e in hinted))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the wall-clock seconds of a block to a phase."""
        started = time.perf_counter()
        try:
            with self._watch(name):
                yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def summary(self) -> dict[str, float]:
        """Flat totals, as written to the run record."""
        return {
            "total_tokens": self.total_tokens,
            **{f"tokens_{name}": n for name, n in self.tokens.items()},
            **self.counts,
            **{f"seconds_{name}": round(s, 3) for name, s in self.seconds.items()},
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything."""
        return {"tokens": dict(self.tokens), "counts": dict(self.counts), "seconds": dict(self.seconds)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.tokens = {name: int(state["tokens"].get(name, 0)) for name in PURPOSES}
        self.counts = {**dict.fromkeys(COUNTS, 0), **state["counts"]}
        self.seconds = dict(state["seconds"])
