"""Configuration of what plays are worth and how the policy learns from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from spade.config_base import Count, Fraction, Positive, Section
from spade.config_trl import TrlConfig


def _off_word(value: Any) -> Any:
    return "off" if value is False else value


class RewardConfig(Section):
    """What the Designer is paid for."""

    type: Literal[
        "blend",
        "regret",
        "regret_lcb",
        "learning_potential",
        "solve_rate",
        "micro_lp",
        "variance",
        "learnability",
    ] = "blend"
    """Reward of an accepted program: the weighted sum of regret, plateau, trend and frontier; regret alone;
    its shrunk lower confidence bound; distance of the mean return from the slow mean of its skill; nearness
    of the mean return to the band; progress within the window; variance of the returns near 1/4; p(1 - p)."""
    regret_window: Literal["first", "all"] = "first"
    """Plain plays the hinted ones are compared with: those of the first step (same weights, paired by seed),
    or all of the window."""
    regret_floor: bool = True
    """Count a negative regret as 0."""
    drop_negative: bool = False
    """Leave a design with a negative raw reward out of the update (as published) instead of charging it."""
    band_low: Fraction = 0.4
    """Lower edge of the wanted mean plain return."""
    band_high: Fraction = 0.6
    """Upper edge of the wanted mean plain return."""
    ramp: float = Field(default=0.25, gt=0)
    """Distance from the band over which the plateau falls from 1 to 0."""
    regret_scale: float = Field(default=0.15, gt=0)
    """Regret that earns the full regret part."""
    regret_weight: float = Field(default=0.4, ge=0)
    """Share of the regret part in `blend`."""
    plateau_weight: float = Field(default=0.6, ge=0)
    """Share of the plateau part in `blend`."""
    mlp_weight: float = Field(default=0.0, ge=0)
    """Weight of the trend of the returns over the window in `blend`; needs `design.delay` of 2 or more."""
    mlp_scale: float = Field(default=0.1, gt=0)
    """Rise of the mean return over the window that earns `mlp_weight`."""
    frontier_weight: float = Field(default=0.0, ge=0)
    """Weight of the penalty (w - 0.5)^2 / `frontier_scale` in `blend`, w being the mean plain return."""
    frontier_scale: float = Field(default=0.08, gt=0)
    """Squared distance from 0.5 that costs `frontier_weight`."""
    variance_weight: float = Field(default=0.0, ge=0)
    """Added to any reward: this much times the bonus for a variance of the returns near 1/4."""
    lcb_z: float = Field(default=1.0, ge=0)
    """Standard errors `regret_lcb` subtracts."""
    lcb_prior: float = Field(default=2.0, ge=0)
    """Pairs without difference that `regret_lcb` adds to those played, which shrinks small samples to 0."""
    potential_fast: Fraction = 0.98
    """Weight of the new value in the fast mean of a skill (logged only)."""
    potential_slow: Fraction = 0.85
    """Weight of the new value in the slow mean of a skill, the reference of `learning_potential`."""
    skill_gate: bool = True
    """Multiply by how far skilled play beats the best blind action sequence; a game of luck earns 0."""
    gate_margin: float = Field(default=0.1, ge=0)
    """Lead over the blind floor below which the gate is 0."""
    gate_width: float = Field(default=0.2, gt=0)
    """Further lead at which the gate is 1."""
    gate_z: float = Field(default=1.0, ge=0)
    """Standard errors subtracted from the lead before the gate (a lower bound); 0 = the plain estimate, which
    lets games of luck through by chance."""

    @model_validator(mode="after")
    def _band(self) -> RewardConfig:
        if self.band_low > self.band_high:
            raise ValueError(f"band_low {self.band_low} is above band_high {self.band_high}")
        return self


class LearnerConfig(Section):
    """The policy-gradient update."""

    type: Literal["compact", "trl"] = "compact"
    """`compact` is the plain-torch learner; `trl` is TRL's GRPOTrainer on the same samples, for models that
    need LoRA, FSDP2 or DeepSpeed (extra `trl`)."""
    lr: float = Field(default=3e-4, ge=0)
    """Learning rate of the Agent's optimiser."""
    designer_lr_factor: float = Field(default=1.0, ge=0)
    """Designer's learning rate as a multiple of `lr`."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    """AdamW moment decays."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay."""
    grad_clip: float = Field(default=1.0, gt=0)
    """Largest gradient norm, per role."""
    clip_low: Fraction = 0.2
    """Lower clip of the probability ratio: 1 - clip_low."""
    clip_high: float = Field(default=0.28, ge=0)
    """Upper clip of the probability ratio: 1 + clip_high."""
    kl: float = Field(default=0.0, ge=0)
    """Weight of the divergence from the start policy; 0 needs no reference model."""
    dual_clip: float = Field(default=0.0, ge=0)
    """For negative advantages, largest ratio that still counts (3 is customary); 0 = no second clip."""
    tis_max: float = Field(default=2.0, ge=0)
    """Cap of the truncated importance weight between sampling and training log-probs; 0 = no weight."""
    truncated_sampling: Literal["refuse", "warn", "allow"] = "refuse"
    """Training on plays sampled with `play.top_p` below 1 or `play.top_k` above 0: their log-probs are over
    the full vocabulary, so the importance weight is too large by 1/Z, Z being the probability kept."""
    loss: Literal["grpo", "dapo", "dr_grpo", "gspo", "reinforce", "cispo", "sapo", "vespo"] = "dapo"
    """Clipped loss with mean per sequence, mean over tokens, or sum over a constant; one ratio for a whole
    sequence; the plain policy gradient without ratio and clip; or one of TRL's own (`cispo`, `sapo`,
    `vespo`), which need `learner.type: trl`."""
    gspo_clip_low: float = Field(default=3e-4, ge=0, le=1)
    """Lower clip of the sequence ratio of `gspo`, whose length-normalised ratios stay close to 1."""
    gspo_clip_high: float = Field(default=4e-4, ge=0)
    """Upper clip of the sequence ratio of `gspo`."""
    epochs: Positive = 1
    """Passes over the samples of a step."""
    minibatches: Positive = 1
    """Optimiser steps of one pass, each on a share of every role's episodes. The clip can only bind when
    `epochs` or `minibatches` is above 1."""
    mask_truncated: Literal["tool_use", "all", "none"] = "tool_use"
    """Episodes cut short by a limit: not trained on in tool use (as published), in any game, or trained as
    the failures they are scored as."""
    mask_malformed: bool = True
    """Tokens of a turn with a malformed tool call stay in the context but carry no loss (as published)."""
    entropy_tokens: Count = 256
    """Sampled tokens of a step whose exact entropy is measured; 0 = none."""
    mismatch_alarm: float = Field(default=0.01, ge=0)
    """Divergence of sampler and learner on the Agent's tokens above which a warning is given; 0 = never."""
    ratio_alarm: float = Field(default=10.0, ge=0)
    """Largest ratio between sampler's and learner's probability of one of the Agent's tokens above which a
    warning is given; 0 = never."""
    seconds: float = Field(default=14_400.0, gt=0)
    """Deadline of the update of one step; the run ends with an error if it takes longer."""
    micro_tokens: Positive = 8192
    """Padded tokens of one forward pass."""
    autocast: Annotated[Literal["auto", "off", "bf16"], BeforeValidator(_off_word)] = "auto"
    """Mixed precision; `auto` uses bfloat16 when the hardware multiplies it natively."""
    optimizer_per_role: bool = True
    """One AdamW state per role, so that the Designer's noise does not scale the Agent's steps."""
    lr_schedule: Literal["constant", "linear"] = "constant"
    """`linear` falls to a tenth at the last step or the last token of the budget."""
    designer_weight: float = Field(default=1.0, ge=0)
    """Weight of Designer samples in the loss; 0 freezes the Designer."""
    designer_scale: Literal["std", "reference", "none"] = "std"
    """Designer advantages are centred per skill, then divided by their spread in the set, multiplied by how
    much rarer they are than Agent samples (as published), or left as they are."""
    advantage: Literal["zscore", "mean", "loo", "ema", "rae"] = "zscore"
    """Agent baseline: centre and divide by (std + floor), centre only, leave one out, a running mean per
    program, or a running mean per arm and skill."""
    std_floor: float = Field(default=0.1, gt=0)
    """Added to the group's standard deviation in `zscore`; published: 1e-8."""
    ema_decay: Fraction = 0.5
    """Share of the old running mean kept at each step in `ema`."""
    rae_decay: Fraction = 0.95
    """Share of the old running mean kept at each step in `rae`."""
    trl: TrlConfig = TrlConfig()
    """What only `learner.type: trl` has."""
