"""Entropy of a policy's output distribution: exact figures, estimators, and what moved between two policies.

Pure functions over arrays, in nats; the trainer's lens (`spade.train.lens`) and the study (`spade.study`)
both count with them. Axes: `_B` prompts, `_Y` all outputs of a prompt, `_S` samples, `_K` kinds.

    exact        entropy, divergence, pass_at_k, support,         from whole distributions
                 coverage
    estimated    chain_rule, mean_nll, plug_in, miller_madow,     from samples
                 good_turing, sampled_pass_at_k
    running      Alarms                                           from one number after another

Which estimator for what: of a sequence, `chain_rule` (unbiased, half the error of `mean_nll`); of answers,
of which there are few, `miller_madow` with `good_turing` beside it, since a plug-in over sequences that
mostly occur once is far too low.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# --- exact -----------------------------------------------------------------------------------------------


def entropy(logprobs_BY: npt.ArrayLike) -> Floats:
    """-sum p log p over the last axis."""
    logp = np.asarray(logprobs_BY, np.float64)
    p = np.exp(logp)
    return np.asarray(-(p * np.where(p > 0, logp, 0.0)).sum(-1))


def divergence(logprobs_BY: npt.ArrayLike, other_BY: npt.ArrayLike) -> Floats:
    """KL(first || second) over the last axis."""
    logp, logq = np.asarray(logprobs_BY, np.float64), np.asarray(other_BY, np.float64)
    p = np.exp(logp)
    return np.asarray((p * np.where(p > 0, logp - logq, 0.0)).sum(-1))


def total_variation(logprobs_BY: npt.ArrayLike, other_BY: npt.ArrayLike) -> Floats:
    """Half the sum of absolute differences over the last axis."""
    p, q = np.exp(np.asarray(logprobs_BY, np.float64)), np.exp(np.asarray(other_BY, np.float64))
    return np.asarray(np.abs(p - q).sum(-1) / 2)


def grouped(logprobs_BY: npt.ArrayLike, labels_BY: npt.NDArray[np.int64], kinds: int) -> Floats:
    """Probability of each kind of output, (B, K), from the label of every output."""
    p = np.exp(np.asarray(logprobs_BY, np.float64))
    rows = np.arange(len(p))[:, None] * kinds
    sums = np.bincount((rows + labels_BY).ravel(), p.ravel(), len(p) * kinds)
    return np.asarray(sums, np.float64).reshape(len(p), kinds)


def pass_at_k(mass_B: npt.ArrayLike, k: int) -> float:
    """Mean over prompts of 1 - (1 - mass)^k: chance that one of k samples is right."""
    mass = np.clip(np.asarray(mass_B, np.float64), 0.0, 1.0)
    with np.errstate(divide="ignore"):
        return float(np.mean(-np.expm1(k * np.log1p(-mass))))


def support(
    before_BY: npt.ArrayLike, after_BY: npt.ArrayLike, right_BY: npt.NDArray[np.bool_], threshold: float
) -> dict[str, int]:
    """Right outputs above `threshold` in both (kept), after only (gained), before only (lost).

    The empirical-support scheme of arXiv 2507.14843, with exact probabilities.
    """
    a = (np.asarray(before_BY) > math.log(threshold)) & right_BY
    b = (np.asarray(after_BY) > math.log(threshold)) & right_BY
    return {"kept": int((a & b).sum()), "gained": int((b & ~a).sum()), "lost": int((a & ~b).sum())}


def coverage(mixture_BY: npt.ArrayLike, logprobs_BY: npt.ArrayLike, ratio: float) -> float:
    """P(mixture(y) / p(y) >= ratio) for y drawn from `mixture`, mean over prompts: the share of what the data
    says that the model says at least `ratio` times less often (coverage profile, arXiv 2510.15020)."""
    mixture, logp = np.asarray(mixture_BY, np.float64), np.asarray(logprobs_BY, np.float64)
    rarer = np.log(np.maximum(mixture, 1e-300)) - logp >= math.log(ratio)
    return float((mixture * rarer).sum(-1).mean())


def mutual_information(logprobs_BY: npt.ArrayLike) -> float:
    """H(mean over prompts) - mean H: low together with a low entropy means one answer for every prompt.

    Only meaningful where an output means the same for every prompt.
    """
    logp = np.asarray(logprobs_BY, np.float64)
    mean = np.exp(logp).mean(0)
    return float(-(mean * np.log(np.maximum(mean, 1e-300))).sum() - entropy(logp).mean())


# --- estimated -------------------------------------------------------------------------------------------


def chain_rule(entropies: Sequence[npt.ArrayLike] | Floats) -> float:
    """Sequence entropy: mean over samples of the summed exact entropies of their positions. Unbiased."""
    return float(np.mean(_sums(entropies)))


def token_mean(values: Sequence[npt.ArrayLike]) -> float:
    """Mean over all positions of all samples."""
    flat = np.concatenate([np.asarray(v, np.float64).ravel() for v in values])
    return float(flat.mean()) if flat.size else 0.0


def mean_nll(logprobs: Sequence[npt.ArrayLike] | Floats) -> float:
    """Sequence entropy as the mean negative log-probability of the samples. Unbiased, noisier."""
    return -float(np.mean(_sums(logprobs)))


def _sums(rows: Sequence[npt.ArrayLike] | Floats) -> Floats:
    """Sum of each row; rows of one length at once."""
    if isinstance(rows, np.ndarray):
        return np.asarray(rows.sum(-1, dtype=np.float64))
    return np.array([np.sum(np.asarray(row, np.float64)) for row in rows])


def plug_in(items: Sequence[Hashable]) -> float:
    """Entropy of the observed frequencies; biased low."""
    counts = np.array(list(Counter(items).values()), np.float64)
    p = counts / counts.sum()
    return float(-(p * np.log(p)).sum()) + 0.0


def miller_madow(items: Sequence[Hashable]) -> float:
    """`plug_in` + (kinds seen - 1) / 2n (Miller 1955)."""
    return plug_in(items) + (len(set(items)) - 1) / (2 * len(items))


def good_turing(items: Sequence[Hashable]) -> float:
    """Coverage: 1 - share of samples seen once, the estimated probability of all kinds seen (Good 1953)."""
    singles = sum(n == 1 for n in Counter(items).values())
    return 1.0 - singles / len(items)


def sampled_pass_at_k(successes: int, n: int, k: int) -> float:
    """1 - C(n - successes, k) / C(n, k), the unbiased estimator (Chen et al. 2021). Needs k <= n."""
    if k > n:
        raise ValueError(f"pass@{k} needs at least {k} samples, got {n}")
    if n - successes < k:
        return 1.0
    return 1.0 - math.prod((n - successes - i) / (n - i) for i in range(k))


def upper_bound(hits: int, n: int) -> float:
    """Upper 95 % bound of a rate; 3 / n without a hit (rule of three), else Wilson's."""
    if hits == 0:
        return min(1.0, 3.0 / n)
    z = 1.96
    p = hits / n
    centre = p + z * z / (2 * n)
    spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return min(1.0, (centre + spread) / (1 + z * z / n))


# --- running ---------------------------------------------------------------------------------------------

COLLAPSE_SHARE = 0.2
"""Share of the start entropy below which it has collapsed, if pass@k fell with it."""
DIFFUSION_RISE = 1.2
"""Multiple of the start entropy above which it diffuses, if accuracy elsewhere fell with it."""
FALL = 0.1
"""By how much pass@k, or accuracy elsewhere, must have fallen since the start."""
NO_SIGNAL_SHARE = 0.95
NO_SIGNAL_STEPS = 20
"""Share of groups without variance, and for how many steps in a row, that make an alarm."""
OFF_GRAMMAR = 0.1
"""Share of unreadable outputs that is always allowed; beyond it, twice the start's share."""

ALARMS = ("collapse", "diffusion", "no_signal", "off_grammar")
EXPLAINED = {
    "collapse": "the entropy fell below a fifth of its start and pass@k fell with it; lower learner.lr "
    "or set learner.kl",
    "diffusion": "the entropy rises while accuracy on other text falls, typical of a reward without "
    "information",
    "no_signal": "over 95 % of the groups had equal returns for 20 steps, so that almost nothing is learned; "
    "use a graded reward, easier programs or a better start model",
    "off_grammar": "the share of unreadable outputs doubled",
}


@dataclass
class Alarms:
    """The four alarms of one role, from the figures of one measurement after another.

    The first measurement is the start. `state_dict` holds all there is, so that a resumed run goes on.
    """

    start: dict[str, float] = field(default_factory=dict)
    constant: deque[float] = field(default_factory=lambda: deque(maxlen=NO_SIGNAL_STEPS))
    """Share of groups without variance of the latest steps."""

    def step(self, constant_share: float | None) -> None:
        """Note one training step: the share of its groups whose returns are all equal."""
        if constant_share is not None:
            self.constant.append(constant_share)

    def check(self, now: Mapping[str, float]) -> dict[str, bool]:
        """Alarms at this measurement; keys it may hold: entropy, pass, elsewhere, off_grammar."""
        if not self.start:
            self.start = dict(now)
        share = now["entropy"] / max(self.start["entropy"], 1e-9) if "entropy" in now else 1.0
        allowed = max(OFF_GRAMMAR, 2 * self.start.get("off_grammar", 0.0))
        full = len(self.constant) == NO_SIGNAL_STEPS
        return {
            "collapse": share < COLLAPSE_SHARE and self._fell(now, "pass"),
            "diffusion": share > DIFFUSION_RISE and self._fell(now, "elsewhere"),
            "no_signal": full and min(self.constant) > NO_SIGNAL_SHARE,
            "off_grammar": now.get("off_grammar", 0.0) > allowed,
        }

    def _fell(self, now: Mapping[str, float], key: str) -> bool:
        return key in now and key in self.start and now[key] < self.start[key] - FALL

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"start": dict(self.start), "constant": list(self.constant)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.start = dict(state["start"])
        self.constant.clear()
        self.constant.extend(state["constant"])
