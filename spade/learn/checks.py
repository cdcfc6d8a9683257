"""Settings that contradict each other, found before a run starts."""

from __future__ import annotations

import warnings

from spade.config import Config
from spade.errors import ConfigError


def check_training(cfg: Config) -> None:
    """Raise ConfigError for settings under which training would be wrong or would learn nothing.

    * Plays sampled with top-p or top-k: engines report log-probs over the full vocabulary, the tokens come
      from the truncated and renormalised set. If Z is the probability kept, a token was drawn 1/Z times as
      often as its importance weight assumes, and the tokens left out are never seen, so the gradient is
      biased. The published runs sample with top-p 0.95 and top-k 20; `learner.truncated_sampling` allows it.
    * Greedy plays or designs carry no gradient.
    * Progress within the window needs plays in at least two of its steps; regret needs hinted plays.
    """
    _check_sampling(cfg)
    reward, plays_hints = cfg.reward, cfg.play.hinted_plays > 0
    if cfg.train.source != "self_play":
        return
    trend = reward.type == "micro_lp" or (reward.type == "blend" and reward.mlp_weight > 0)
    if trend and cfg.design.delay < 2:
        raise ConfigError(
            f"design.delay is {cfg.design.delay}, but the reward asks for the progress within the window, "
            "which needs plays of at least two steps; set design.delay to the length of the window, such as "
            f"{max(2, cfg.design.every)}"
        )
    if reward.type in ("regret", "regret_lcb") and not plays_hints:
        raise ConfigError(
            f"reward.type is {reward.type}, but play.hinted_plays is 0, so no regret is ever measured; set "
            "play.hinted_plays or choose another reward"
        )


def _check_sampling(cfg: Config) -> None:
    trained = {"play": cfg.play.temperature}
    learns = cfg.design.policy in ("shared", "separate") and cfg.learner.designer_weight > 0
    if learns and cfg.train.source == "self_play":
        trained["design"] = cfg.design.temperature
    for section, temperature in trained.items():
        if temperature <= 0:
            raise ConfigError(f"{section}.temperature is 0, but greedy samples carry no gradient; use 1")
    cut: list[str] = []
    for section in trained:
        role = cfg.play if section == "play" else cfg.design
        cut += [f"{section}.top_p={role.top_p:g}"] if role.top_p < 1 else []
        cut += [f"{section}.top_k={role.top_k}"] if role.top_k > 0 else []
    if not cut or cfg.learner.truncated_sampling == "allow":
        return
    verb = "cuts" if len(cut) == 1 else "cut"
    problem = f"{' and '.join(cut)} {verb} the distribution that is sampled from, which biases training"
    if cfg.learner.truncated_sampling == "refuse":
        raise ConfigError(f"{problem}; use top_p=1 top_k=0, or learner.truncated_sampling=warn")
    warnings.warn(problem, stacklevel=3)
