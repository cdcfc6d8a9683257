"""Numbers about the plays of one step: regimes, groups, skills, lengths.

The regimes are those regret is meant to separate (arXiv 2608.19197, section 3): a program is at the
*frontier* if it can be won but is not yet won reliably, *mastered* if it is won without a hint, *intractable*
if it is won neither with nor without.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np

from spade.play.actions import strip_thoughts
from spade.train.source import returns
from spade.types import Episode, Group

Regime = Literal["frontier", "mastered", "intractable"]
REGIMES: tuple[Regime, ...] = ("frontier", "mastered", "intractable")

MASTERED_ABOVE = 0.85
"""Mean plain return above which nothing is left to learn; the upper edge of the memory's positive range."""
INTRACTABLE_BELOW = 0.15
"""Mean return of the better arm below which nothing can be learned yet."""
LEARNABLE = (0.2, 0.8)
"""Band of the "learnable share" the paper reports (section on analysis)."""


def regime(plain: float, hinted: float | None) -> Regime:
    """Regime of one program from the mean returns of its arms (hinted None: the arm was not played)."""
    if plain > MASTERED_ABOVE:
        return "mastered"
    best = plain if hinted is None else max(plain, hinted)
    return "intractable" if best < INTRACTABLE_BELOW else "frontier"


def group_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Shares over the step's programs (those with at least one plain return); empty without any."""
    rows = [(g, np.array(r)) for g in groups if (r := returns(g.plain))]
    if not rows:
        return {}
    regimes = Counter(regime(float(r.mean()), mean_or_none(returns(g.hinted))) for g, r in rows)
    means = np.array([r.mean() for _, r in rows])
    low, high = LEARNABLE
    n = len(rows)
    return {
        **{f"share/{name}": regimes[name] / n for name in REGIMES},
        "share/learnable": float(np.mean((means >= low) & (means <= high))),
        "share/easy": float(np.mean(means > high)),
        "share/hard": float(np.mean(means < low)),
        "groups/constant": sum(r.min() == r.max() for _, r in rows) / n,
        "groups/all_zero": sum(r.max() <= 0 for _, r in rows) / n,
        "groups/all_won": sum(r.min() >= 1 for _, r in rows) / n,
        "return_std": float(np.concatenate([r for _, r in rows]).std()),
        "return_std_within": float(np.mean([r.std() for _, r in rows])),
    }


def skill_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Mean and spread of the returns by skill, and mean hinted minus plain where both arms were played."""
    plain: dict[str, list[float]] = defaultdict(list)
    plays: dict[str, list[float]] = defaultdict(list)
    hinted: dict[str, list[float]] = defaultdict(list)
    gaps: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        skill = group.program.skill or "none"
        p, h = mean_or_none(returns(group.plain)), mean_or_none(returns(group.hinted))
        if p is not None:
            plain[skill].append(p)
            plays[skill].extend(returns(group.plain))
        if h is not None:
            hinted[skill].append(h)
        if p is not None and h is not None:
            gaps[skill].append(h - p)
    tables = (("return_plain", plain), ("return_hinted", hinted), ("regret", gaps))
    out = {f"skill/{skill}/return_std": float(np.std(values)) for skill, values in sorted(plays.items())}
    return out | {
        f"skill/{skill}/{name}": float(np.mean(values))
        for name, table in tables
        for skill, values in sorted(table.items())
    }


def length_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Sampled tokens a play, the longest one, the share of plays cut off by a limit, and turns with a thought
    a play where there are any."""
    out: dict[str, float] = {}
    for arm in ("plain", "hinted"):
        plays: list[Episode] = [e for g in groups for e in getattr(g, arm)]
        if not plays:
            continue
        sizes = [e.sampled_tokens for e in plays]
        out[f"play_tokens/{arm}_mean"] = float(np.mean(sizes))
        out[f"play_tokens/{arm}_max"] = float(max(sizes))
        out[f"cut_off/{arm}"] = sum(e.truncated for e in plays) / len(plays)
        thoughts = [sum(strip_thoughts(t.text) != t.text for t in e.turns) for e in plays]
        if any(thoughts):
            out[f"thoughts/{arm}"] = float(np.mean(thoughts))
    return out


def mean_or_none(values: Sequence[float]) -> float | None:
    """Mean, or None of nothing."""
    return float(np.mean(values)) if values else None
