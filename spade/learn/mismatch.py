"""Do sampler and learner agree about tokens sampled from the present weights? Measured in every update.

Two numbers a role: `mismatch_kl`, the k3 estimate of KL(sampler || learner) a token, and `mismatch_max`, the
largest ratio between their probabilities of one token. The truncated importance weight of the loss corrects
for what they show; above a limit something is wrong that no weight corrects.
"""

from __future__ import annotations

import warnings
from typing import Any

from spade.config import LearnerConfig


def alarm_of(metrics: dict[str, float], cfg: LearnerConfig) -> str:
    """What is above its limit, in words; "" if nothing is.

    Designs may be several updates old when they are trained, so their divergence says nothing of the two
    engines and raises no alarm.
    """
    for name, key, limit, what in (
        ("mismatch_kl", "mismatch_alarm", cfg.mismatch_alarm, "their divergence a token is"),
        ("mismatch_max", "ratio_alarm", cfg.ratio_alarm, "their largest ratio on one token is"),
    ):
        found = [x for n, x in metrics.items() if n.startswith(f"{name}/") and n != f"{name}/designer"]
        worst = max(found, default=0.0)
        if 0 < limit < worst:
            return f"{what} {worst:.3g}, above learner.{key} {limit:g}"
    return ""


def watch_mismatch(learner: Any, metrics: dict[str, float]) -> None:
    """Add `mismatch_alarm` (0 or 1) to the metrics of `learner.step` and warn the first time it is 1.

    `learner` has `cfg`, `team` and a bool `warned` of its own; only rank 0 warns.
    """
    alarm = alarm_of(metrics, learner.cfg)
    metrics["mismatch_alarm"] = float(bool(alarm))
    if alarm and not learner.warned and learner.team.leads:
        learner.warned = True
        warnings.warn(
            f"sampler and learner disagree: {alarm}; compare serving.dtype with learner.autocast, and check "
            "that the engine has the learner's weights",
            stacklevel=3,
        )
