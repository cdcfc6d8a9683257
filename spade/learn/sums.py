"""Running sums of one step's statistics, turned into flat metrics at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spade.learn.batch import PackedBatch, count_episodes, count_groups
from spade.types import Sample

MEANS = {
    "ratio": "ratio_mean",
    "clipped": "clip_share",
    "tis": "tis_mean",
    "tis_capped": "tis_capped",
    "mismatch": "mismatch_kl",
    "kl": "reference_kl",
    "nll": "entropy",
}
"""Name of a sum over tokens -> name of its mean in the metrics."""


@dataclass
class RoleSums:
    """Sums over the micro-batches of one role."""

    loss: float = 0.0
    rows: int = 0
    tokens: int = 0
    forward_tokens: int = 0
    tis_max: float = 0.0
    mismatch_max: float = 0.0
    totals: dict[str, float] = field(default_factory=dict)
    entropy: float = 0.0
    entropy_tokens: int = 0

    def add(self, other: RoleSums) -> None:
        """Add the sums of other micro-batches."""
        self.loss += other.loss
        self.rows += other.rows
        self.tokens += other.tokens
        self.forward_tokens += other.forward_tokens
        self.entropy += other.entropy
        self.entropy_tokens += other.entropy_tokens
        self.tis_max = max(self.tis_max, other.tis_max)
        self.mismatch_max = max(self.mismatch_max, other.mismatch_max)
        for name, value in other.totals.items():
            self.totals[name] = self.totals.get(name, 0.0) + value

    def means(self) -> dict[str, float]:
        """Mean of every sum a token, under the name the metrics use."""
        n = max(self.tokens, 1)
        out = {new: self.totals[old] / n for old, new in MEANS.items() if old in self.totals}
        if self.entropy_tokens:
            out["token_entropy"] = self.entropy / self.entropy_tokens
        return out | {"tis_max": self.tis_max, "mismatch_max": self.mismatch_max}


class StepSums:
    """Statistics of one `CompactLearner.step`, by role; several passes over a sample count several times."""

    def __init__(self) -> None:
        self.roles: dict[str, RoleSums] = {}
        self.updates: list[dict[str, float]] = []
        """Gradient norms of every optimiser step."""
        self.skipped = 0

    @property
    def tokens(self) -> int:
        """Sampled tokens seen so far."""
        return sum(r.tokens for r in self.roles.values())

    def add(self, role: str, batch: PackedBatch, numbers: Mapping[str, float], probed: int) -> None:
        """Add one micro-batch of one role: the sums `policy_loss` returned, its share of the `loss`, and the
        sum of the exact `entropy` at `probed` tokens."""
        sums = self.roles.setdefault(role, RoleSums())
        sums.loss += numbers["loss"]
        sums.rows += len(batch.rows)
        sums.tokens += int(batch.mask_BT.sum())
        sums.forward_tokens += int(batch.lengths_B.sum())
        sums.tis_max = max(sums.tis_max, numbers["tis_max"])
        sums.mismatch_max = max(sums.mismatch_max, numbers["mismatch_max"])
        for name in MEANS:
            if name in numbers:
                sums.totals[name] = sums.totals.get(name, 0.0) + numbers[name]
        sums.entropy += numbers["entropy"]
        sums.entropy_tokens += probed

    def merge(self, others: Sequence[StepSums]) -> None:
        """Add what other processes saw of the same step; the updates are everybody's and stay."""
        for other in others:
            for role, theirs in other.roles.items():
                self.roles.setdefault(role, RoleSums()).add(theirs)

    def updated(self, norms: dict[str, float], skipped: int) -> None:
        """Note one update: gradient norms by role, and how many optimisers were left out of it."""
        self.updates.append(norms)
        self.skipped += skipped

    def metrics(self) -> dict[str, float]:
        """Flat names to numbers: over all roles, and `NAME/ROLE` for each.

        `entropy` is the mean of -logp of the sampled tokens, `token_entropy` the exact entropy at some of
        them. `loss` and gradient norms are means over the optimiser steps of this call.
        """
        steps = max(len(self.updates), 1)
        total = RoleSums()
        out: dict[str, float] = {}
        for role, sums in sorted(self.roles.items()):
            total.add(sums)
            numbers = sums.means() | {"loss": sums.loss / steps, "tokens": float(sums.tokens)}
            out |= {f"{name}/{role}": value for name, value in numbers.items()}
        norms = sorted({name for update in self.updates for name in update})
        for name in norms:
            seen = [update[name] for update in self.updates if name in update]
            out[f"grad_norm/{name}"] = sum(seen) / len(seen)
        return out | {
            **total.means(),
            "loss": total.loss / steps,
            "samples": float(total.rows),
            "tokens": float(total.tokens),
            "forward_tokens": float(total.forward_tokens),
            "updates": float(len(self.updates)),
            "skipped_updates": float(self.skipped),
        }


def batch_metrics(samples: Sequence[Sample], kept: int) -> dict[str, float]:
    """What a batch was made of, and how many samples and whole groups of it carried no signal."""
    groups, constant = count_groups(samples)
    return {
        "dropped": float(len(samples) - kept),
        "episodes": float(count_episodes(samples)),
        "groups": float(groups),
        "groups_dropped": float(constant),
    }
