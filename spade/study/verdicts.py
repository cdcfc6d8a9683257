"""Verdicts by rules that were written down before the data was seen.

Each rule looks at the finished cells of its experiment and says `reproduced`, `not reproduced` or
`inconclusive` (too few runs, or the interval crosses the bound), with the numbers it used. Changing a rule
after a result has been seen is not done; a rule that proves ill-chosen stays, and the log says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from spade.study.real import BUDGET
from spade.study.stats import Interval, bootstrap, spearman, wilson

REPRODUCED, NOT, OPEN = "reproduced", "not reproduced", "inconclusive"


@dataclass(frozen=True)
class Run:
    """One finished cell as a rule sees it."""

    labels: dict[str, str]
    seed: int
    trunk: int
    summary: dict[str, Any]
    status: str

    @property
    def success(self) -> bool:
        """Final mass of at least one half; a run that diverged failed."""
        return self.status == "finished" and bool(self.summary.get("success"))


@dataclass(frozen=True)
class Verdict:
    """What a rule says, and of what."""

    rule: str
    verdict: str
    numbers: dict[str, Any]


Rule = Callable[[Sequence[Run]], Verdict]
NEED = 4 / 5
"""Share of successes that the rules ask for."""


def chosen(runs: Sequence[Run], **labels: str) -> list[Run]:
    """Runs with these levels."""
    return [r for r in runs if all(r.labels.get(k) == v for k, v in labels.items())]


def all_of(parts: Sequence[str]) -> str:
    """One verdict of several: all reproduced, or one not, or else inconclusive."""
    if NOT in parts:
        return NOT
    return REPRODUCED if parts and all(p == REPRODUCED for p in parts) else OPEN


def at_least(successes: int, n: int, share: float) -> str:
    """Whether a rate reaches `share`; without runs inconclusive."""
    if n == 0:
        return OPEN
    return REPRODUCED if successes >= math.ceil(share * n - 1e-9) else NOT


def below(interval: Interval) -> str:
    """Whether a difference is below 0, its interval included."""
    if not math.isfinite(interval.value) or interval.low < 0 < interval.high:
        return OPEN
    return REPRODUCED if interval.high <= 0 and interval.value < 0 else NOT


def paired(
    runs: Sequence[Run], value: Callable[[Run], float], first: dict[str, str], second: dict[str, str]
) -> Interval:
    """Bootstrap over trunks and seeds of the paired difference first - second."""
    others = {(r.trunk, r.seed): r for r in chosen(runs, **second)}
    by_trunk: dict[int, list[float]] = {}
    for run in chosen(runs, **first):
        if (other := others.get((run.trunk, run.seed))) is not None:
            by_trunk.setdefault(run.trunk, []).append(value(run) - value(other))
    return bootstrap(by_trunk)


def e1(runs: Sequence[Run]) -> Verdict:
    """never: at most 1/5 successes, and KL 0 in every run without a hit; from 1e-3 on: at least 4/5; take-off
    earlier the larger p0 (Spearman < -0.8)."""
    runs = [r for r in runs if r.labels.get("budget", "32k") == "32k"]
    never = chosen(runs, prior="never")
    silent = [r for r in never if r.summary["rewarded"] == 0]
    moved = [r.summary["end"]["KL"] for r in silent]
    parts, numbers = [], {"never": _rate(never), "never_without_hit": len(silent), "their_KL": moved}
    parts.append(OPEN if not never else REPRODUCED if _wins(never) <= len(never) / 5 else NOT)
    parts.append(REPRODUCED if all(kl == 0 for kl in moved) else NOT)
    for level in ("1e-3", "1e-2", "max"):
        if here := chosen(runs, prior=level):
            parts.append(at_least(_wins(here), len(here), NEED))
            numbers[level] = _rate(here)
    risen = [r for r in runs if r.summary["takeoff"] is not None]
    rho = spearman([r.summary["p0"] for r in risen], [r.summary["takeoff"] for r in risen])
    parts.append(OPEN if math.isnan(rho) or len(risen) < 5 else REPRODUCED if rho < -0.8 else NOT)
    return Verdict(_text(e1), all_of(parts), {**numbers, "spearman_takeoff_p0": rho})


def e2(runs: Sequence[Run]) -> Verdict:
    """SFT+ ends at a mean mass of at least 0.9; SFT- (hinge) stays at 1e-3 or below in every run."""
    plus, hinge = chosen(runs, start="SFT+"), chosen(runs, start="SFT- (hinge)")
    parts = [
        OPEN if not plus else REPRODUCED if _mean(plus, _mass) >= 0.9 else NOT,
        OPEN if not hinge else REPRODUCED if all(_mass(r) <= 1e-3 for r in hinge) else NOT,
    ]
    numbers = {"SFT+": _mean(plus, _mass), "SFT- (hinge)": [_mass(r) for r in hinge]}
    return Verdict(_text(e2), all_of(parts), numbers)


def e3(runs: Sequence[Run]) -> Verdict:
    """partial or step lifts the never-seen behaviour from at most 1e-5 to at least 0.5 in 4/5 of the runs."""
    numbers: dict[str, Any] = {}
    parts = []
    for reward in ("exact", "partial", "step"):
        here = chosen(runs, prior="never", reward=reward)
        numbers[reward] = _rate(here)
        if reward != "exact" and here:
            low = all(r.summary["start"]["mass"] <= 1e-5 for r in here)
            numbers[f"{reward}_p0"] = [r.summary["start"]["mass"] for r in here]
            parts.append(at_least(_wins(here), len(here), NEED) if low else OPEN)
    verdict = OPEN if not parts else REPRODUCED if REPRODUCED in parts else all_of(parts)
    return Verdict(_text(e3), verdict, numbers)


def e4(runs: Sequence[Run]) -> Verdict:
    """lev ends at a lower exact mass than exact, by paired 95 % interval."""
    gap = paired(runs, _mass, {"reward": "lev"}, {"reward": "exact"})
    return Verdict(_text(e4), below(gap), {"lev - exact": _interval(gap)})


def e5(runs: Sequence[Run]) -> Verdict:
    """narrow (1 prompt, 1 domain) against broad (most prompts, 9 domains), paired: the entropy of the first
    domain falls further, and accuracy on the other domains stays higher."""
    counts = sorted({int(r.labels["prompts"]) for r in runs}) or [0]
    narrow = {"prompts": str(counts[0]), "breadth": "1", "algorithm": "clip"}
    broad = {"prompts": str(counts[-1]), "breadth": "9", "algorithm": "clip"}
    entropy = paired(runs, _entropy_change, narrow, broad)
    others = paired(runs, lambda r: -r.summary["end"]["others"], narrow, broad)
    numbers = {
        "dH narrow - broad": _interval(entropy),
        "accuracy elsewhere broad - narrow": _interval(others),
        "dH narrow": _mean(chosen(runs, **narrow), _entropy_change),
        "dH broad": _mean(chosen(runs, **broad), _entropy_change),
    }
    return Verdict(_text(e5), all_of([below(entropy), below(others)]), numbers)


def e6(runs: Sequence[Run]) -> Verdict:
    """with one prompt accuracy rises where the likelier strategy is the better one (A 0.8, better) more than
    where it is the worse one (A 0.8, worse), and not with many prompts."""

    def gain(r: Run) -> float:
        return float(r.summary["end"]["mass"] - r.summary["start"]["mass"])

    helped = chosen(runs, prior="A 0.8, better", prompts="1")
    hurt = chosen(runs, prior="A 0.8, worse", prompts="1")
    broad = chosen(runs, prior="A 0.8, better", prompts="1000")
    gains = {name: _mean(x, gain) for name, x in (("better", helped), ("worse", hurt), ("many", broad))}
    first = bootstrap(_by_trunk(helped, lambda r: -gain(r)))
    parts = [below(first)] if helped else [OPEN]
    parts.append(OPEN if not hurt else REPRODUCED if gains["better"] > gains["worse"] else NOT)
    parts.append(OPEN if not broad else REPRODUCED if gains["better"] > gains["many"] else NOT)
    return Verdict(_text(e6), all_of(parts), gains)


def e7(runs: Sequence[Run]) -> Verdict:
    """SFT+ raises the entropy; SFT-100 and RL cut it by at least 80 %; at equal mass RL keeps more accuracy
    on the other domains than SFT-100."""
    base, h = chosen(runs, stage="base"), {}
    for stage in ("base", "SFT+", "SFT-100", "RL"):
        h[stage] = _mean(chosen(runs, stage=stage), lambda r: float(r.summary["end"]["H_seq"]))
    others = paired(runs, lambda r: -r.summary["end"]["others"], {"stage": "RL"}, {"stage": "SFT-100"})
    numbers: dict[str, Any] = {f"H_seq {k}": v for k, v in h.items()}
    numbers |= {"forgetting RL - SFT-100": _interval(others)}
    if not base or any(math.isnan(v) for v in h.values()):
        return Verdict(_text(e7), OPEN, numbers)
    parts = [
        REPRODUCED if h["SFT+"] > h["base"] else NOT,
        *(REPRODUCED if h[s] <= 0.2 * h["base"] else NOT for s in ("SFT-100", "RL")),
        below(others),
    ]
    return Verdict(_text(e7), all_of(parts), numbers)


def e8(runs: Sequence[Run]) -> Verdict:
    """exact: right outputs gained above 1e-4 at most a tenth of those lost; partial: more gained than with
    exact."""

    def count(name: str) -> Callable[[Run], float]:
        return lambda r: float(r.summary["end"][f"{name}@0.0001"])

    sparse, dense = (chosen(runs, reward=reward, algorithm="grpo") for reward in ("exact", "partial"))
    numbers = {
        f"{name} {reward}": _mean(x, count(name))
        for reward, x in (("exact", sparse), ("partial", dense))
        for name in ("kept", "gained", "lost")
    }
    if not sparse or not dense:
        return Verdict(_text(e8), OPEN, numbers)
    few = numbers["gained exact"] <= 0.1 * max(numbers["lost exact"], 1e-9)
    more = numbers["gained partial"] > numbers["gained exact"]
    return Verdict(_text(e8), REPRODUCED if few and more else NOT, numbers)


def e9(runs: Sequence[Run]) -> Verdict:
    """under random reward clipping leaves a lower entropy than the same updates without a clip, and a
    constant reward moves plain reinforce but not grpo."""
    clip = paired(
        runs,
        _entropy_change,
        {"algorithm": "clip", "reward": "random"},
        {"algorithm": "no-clip", "reward": "random"},
    )
    still = [r.summary["end"]["KL"] for r in chosen(runs, reward="constant", algorithm="grpo")]
    plain = [r.summary["end"]["KL"] for r in chosen(runs, reward="constant", algorithm="reinforce")]
    moves = OPEN if not still or not plain else REPRODUCED if max(still) == 0 < min(plain) else NOT
    numbers = {
        "dH clip - no-clip": _interval(clip),
        "KL constant grpo": still,
        "KL constant reinforce": plain,
    }
    return Verdict(_text(e9), all_of([below(clip), moves]), numbers)


def e11(runs: Sequence[Run]) -> Verdict:
    """mass on held-out prompts grows with the number of training prompts."""
    counts = sorted({int(r.labels["prompts"]) for r in runs})
    means = [_mean(chosen(runs, prompts=str(n)), _mass) for n in counts]
    rising = all(a < b for a, b in pairwise(means))
    verdict = OPEN if len(counts) < 3 else REPRODUCED if rising else NOT
    return Verdict(_text(e11), verdict, dict(zip(map(str, counts), means, strict=True)))


def e12(runs: Sequence[Run]) -> Verdict:
    """rollouts at temperature 0.4 fail (at most 1/5) where those at 1.0 succeed (at least 4/5)."""
    cold, warm = chosen(runs, temperature="0.4"), chosen(runs, temperature="1.0")
    parts = [
        OPEN if not cold else REPRODUCED if _wins(cold) <= len(cold) / 5 else NOT,
        at_least(_wins(warm), len(warm), NEED),
    ]
    numbers = {"0.4": _rate(cold), "1.0": _rate(warm), "p0 at 0.4": [r.summary["p0"] for r in cold]}
    return Verdict(_text(e12), all_of(parts), numbers)


def e13(runs: Sequence[Run]) -> Verdict:
    """the chain-rule estimator is off by less than 0.02 nats on average at 256 samples, on every start."""
    bias = {f"{r.labels['start']}, seed {r.seed}": r.summary["256"]["chain_rule/bias"] for r in runs}
    verdict = OPEN if not bias else REPRODUCED if all(abs(b) < 0.02 for b in bias.values()) else NOT
    return Verdict(_text(e13), verdict, bias)


def r1(runs: Sequence[Run]) -> Verdict:
    """as E1 and E3. Sparse reward: the unseen text succeeds in at most 1/5, and KL is 0 in every run without
    a hit; the seen text succeeds in at least 4/5. The partial reward lifts the unseen text from below 1e-6 to
    at least 0.5 in 4/5. Runs of less than the original's 4,096 rollouts decide nothing: inconclusive."""
    unseen, seen = (chosen(runs, prior=prior, reward="exact") for prior in ("unseen", "seen"))
    dense = chosen(runs, prior="unseen", reward="partial")
    moved = [r.summary["end"]["KL"] for r in unseen if r.summary["rewarded"] == 0]
    parts = {
        "unseen stays": OPEN if not unseen else REPRODUCED if _wins(unseen) <= len(unseen) / 5 else NOT,
        "KL 0 without a hit": REPRODUCED if all(kl == 0 for kl in moved) else NOT,
        "seen rises": at_least(_wins(seen), len(seen), NEED),
        "partial lifts unseen": at_least(_wins(dense), len(dense), NEED),
    }
    if any(r.summary["p0"] >= 1e-6 for r in dense):
        parts["partial lifts unseen"] = OPEN
    rates = {"unseen exact": _rate(unseen), "seen exact": _rate(seen), "unseen partial": _rate(dense)}
    budgets = [int(r.summary["budget"]) for r in runs]
    numbers = {**rates, "parts": parts, "KL without a hit": moved, "rollouts": sorted(set(budgets))}
    short = min(budgets, default=0) < BUDGET
    return Verdict(_text(r1), OPEN if short else all_of(list(parts.values())), numbers)


RULES: dict[str, Rule] = {
    "E1": e1, "E2": e2, "E3": e3, "E4": e4, "E5": e5, "E6": e6, "E7": e7, "E8": e8, "E9": e9, "E11": e11,
    "E12": e12, "E13": e13, "R1": r1,
}  # fmt: skip
"""Rule of every experiment that has one; E10 only describes."""


def judge(experiment: str, runs: Sequence[Run], planned: int) -> Verdict | None:
    """The verdict of an experiment. With cells missing, `reproduced` becomes `inconclusive`."""
    rule = RULES.get(experiment)
    if rule is None:
        return None
    found = rule(runs)
    numbers = {**found.numbers, "runs": len(runs), "planned": planned}
    verdict = OPEN if len(runs) < planned and found.verdict == REPRODUCED else found.verdict
    return Verdict(found.rule, verdict, numbers)


def _mass(r: Run) -> float:
    return float(r.summary["end"]["mass"])


def _entropy_change(r: Run) -> float:
    return float(r.summary["end"]["H_seq"] - r.summary["start"]["H_seq"])


def _wins(runs: Sequence[Run]) -> int:
    return sum(r.success for r in runs)


def _rate(runs: Sequence[Run]) -> str:
    return f"{_wins(runs)}/{len(runs)}, rate {wilson(_wins(runs), len(runs))}"


def _mean(runs: Sequence[Run], value: Callable[[Run], float]) -> float:
    return sum(map(value, runs)) / len(runs) if runs else math.nan


def _by_trunk(runs: Sequence[Run], value: Callable[[Run], float]) -> dict[int, list[float]]:
    out: dict[int, list[float]] = {}
    for run in runs:
        out.setdefault(run.trunk, []).append(value(run))
    return out


def _interval(interval: Interval) -> list[float]:
    return [interval.value, interval.low, interval.high]


def _text(rule: Rule) -> str:
    return " ".join((rule.__doc__ or "").split())
