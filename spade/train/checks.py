"""Everything that is checked about a config before a run starts; each refusal is one sentence.

A setting that has no effect under the others, or makes them meaningless, is a mistake of its author and ends
the command, rather than a run of hours that measured something else.
"""

from __future__ import annotations

from spade import registry
from spade.config import Config
from spade.envs.battery import STAGES, plan
from spade.errors import ConfigError
from spade.learn.checks import check_training
from spade.learn.trl_args import trl_problem
from spade.train.roles import check_roles, trains_designs
from spade.train.tracking import check_sinks


def check_run(cfg: Config) -> None:
    """Raise ConfigError for settings that contradict each other, InputError for a Designer that is not
    there."""
    stages = [*STAGES, *registry.names("stage")]
    for name in cfg.validator.stages:
        if name not in stages and ":" not in name:  # `plan` looks up only those that are switched on
            raise ConfigError(f"validator.stages: unknown stage '{name}'{registry.suggestion(name, stages)}")
    plan(cfg.validator)
    if cfg.play.codec != "auto":
        registry.target("codec", cfg.play.codec)
    check_sinks(cfg)
    check_training(cfg)
    for found in (_staleness(cfg), _sleep(cfg), trl_problem(cfg)):
        if found:
            raise ConfigError(found)
    if cfg.train.source == "self_play":
        check_roles(cfg)
        for found in (_hints(cfg), _returns(cfg), _groups(cfg), _optimisers(cfg)):
            if found:
                raise ConfigError(found)


def _hints(cfg: Config) -> str:
    play, reward = cfg.play, cfg.reward
    if cfg.hints.source == "solution" and cfg.hints.checks:
        return (
            "hints.source is solution, but hints.checks refuses hints that hold the answer, so no hint would "
            "ever be shown; set hints.checks=false, or hints.source=policy"
        )
    if play.hinted_plays > play.plays:
        return (
            f"play.hinted_plays is {play.hinted_plays}, but hinted plays share their seeds with the plain "
            f"ones and play.plays is {play.plays}; use at most as many"
        )
    if play.hinted_plays:
        return ""
    if reward.type == "blend" and reward.regret_weight > 0:
        return (
            "play.hinted_plays is 0, so no regret is ever measured, but reward.regret_weight is "
            f"{reward.regret_weight:g}; set play.hinted_plays, or reward.type=solve_rate"
        )
    if cfg.hints.train == "true":
        return "hints.train is true, but play.hinted_plays is 0, so no hinted play is there to train on"
    return ""


def _returns(cfg: Config) -> str:
    if cfg.play.returns == "progress" and cfg.design.game_type == "tool_use":
        return (
            "play.returns is progress, but tool-use programs pay nothing before the last answer, so there is "
            "no progress to count; use play.returns=outcome"
        )
    return ""


def _staleness(cfg: Config) -> str:
    if cfg.train.staleness and not cfg.learner.tis_max:
        return (
            "train.staleness is 1, so plays come from weights that lack an update, but learner.tis_max=0 "
            "switches off the importance weight that corrects for it; set learner.tis_max, or "
            "train.staleness=0"
        )
    return ""


def _sleep(cfg: Config) -> str:
    if cfg.serving.vllm.sleep and cfg.train.staleness:
        return (
            "serving.vllm.sleep is true, but with train.staleness=1 the engine plays while it learns; "
            "use train.staleness=0, or serving.vllm.sleep=false"
        )
    return ""


def _groups(cfg: Config) -> str:
    if cfg.play.plays == 1 and cfg.learner.advantage in ("zscore", "mean", "loo"):
        return (
            f"play.plays is 1, but learner.advantage={cfg.learner.advantage} compares the plays of one "
            "program, so every advantage would be 0; use more plays, or learner.advantage=ema or rae"
        )
    return ""


def _optimisers(cfg: Config) -> str:
    learner = cfg.learner
    one = not learner.optimizer_per_role and cfg.design.policy == "shared" and trains_designs(cfg)
    if learner.designer_lr_factor != 1 and one:
        return (
            f"learner.designer_lr_factor is {learner.designer_lr_factor:g}, but with one optimiser for both "
            "roles there is one learning rate; set learner.optimizer_per_role=true, or weigh designs with "
            "learner.designer_weight"
        )
    return ""
