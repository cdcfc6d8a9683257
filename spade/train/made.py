"""A step that was generated and not yet trained on.

With `train.staleness` 1 there is always one: it is generated while the step before it is trained on, and a
checkpoint that is written in between holds it. So a run that goes on from there trains on the same plays,
sampled from the same weights, as one that was never stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spade.train.ledger import Ledger
from spade.train.record import play_metrics, sample_metrics, samples_of
from spade.train.source import returns
from spade.types import Credit, Group, Sample

UPDATING = ("learn", "lens", "checkpoint", "eval")
"""Phases that belong to the update and not to the generation of a step."""


@dataclass(frozen=True, slots=True)
class Made:
    """What the update of a step and its row of `metrics.jsonl` still need.

    `versions[i]` is that of the weights `samples[i]` was drawn from; `returns` holds the plain returns of
    each program that has any; `seconds` is wall clock by phase, `whole_seconds` that of all of them.
    """

    step: int
    """The step, counted from 1."""
    samples: tuple[Sample, ...]
    versions: tuple[int, ...]
    returns: tuple[tuple[float, ...], ...]
    row: dict[str, Any]
    seconds: dict[str, float]
    whole_seconds: float

    def ages(self, versions: Mapping[str, int]) -> dict[str, float]:
        """Updates between the weights of the samples and those about to be trained (`versions` by role)."""
        by_role: dict[str, list[int]] = {}
        for sample, drawn in zip(self.samples, self.versions, strict=True):
            by_role.setdefault(sample.role, []).append(versions[sample.role] - drawn)
        out = {f"staleness/{role}": float(np.mean(ages)) for role, ages in sorted(by_role.items())}
        return out | {f"staleness/{role}_max": float(max(ages)) for role, ages in sorted(by_role.items())}

    def whole_row(
        self,
        seen: Mapping[str, float],
        learned: Mapping[str, float],
        seconds: Mapping[str, float],
        wall: float,
    ) -> dict[str, Any]:
        """The finished row. Keys with `seconds` are wall clock, of phases that may overlap and of the whole
        step (`wall`); all others repeat."""
        return {
            **self.row,
            **seen,
            **{f"learner/{k}": v for k, v in learned.items()},
            "seconds": round(wall, 4),
            **{f"seconds/{name}": round(s, 4) for name, s in {**self.seconds, **seconds}.items()},
        }


def made_of(
    step: int,
    groups: Sequence[Group],
    credits: Sequence[Credit],
    numbers: Mapping[str, float],
    ledger: Ledger,
    before: Mapping[str, float],
    wall: float,
) -> Made:
    """A generated step. `numbers` are the source's, `before` the ledger's seconds when the step began."""
    samples = samples_of(credits)
    row = play_metrics(step, groups, {**numbers, **sample_metrics(samples)}, ledger)
    return Made(
        step=step,
        samples=tuple(samples),
        versions=tuple(c.trajectory.weight_version for c in credits if c.trajectory.sampled_tokens),
        returns=tuple(tuple(r) for g in groups if (r := returns(g.plain))),
        row=row,
        seconds={k: v - before.get(k, 0.0) for k, v in ledger.seconds.items() if k not in UPDATING},
        whole_seconds=wall,
    )
