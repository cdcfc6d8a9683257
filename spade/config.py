"""The configuration of a run: one frozen tree of pydantic models, and nothing else.

Every field is explained by the string under it; `spade config schema` prints the same text. The defaults are
the sizes of the five-minute demo on two CPU cores. Files, `extends` and `key=value` overrides are read by
`spade.config_load`, never here. An unknown key is an error: an option that is accepted and ignored is worse
than none.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]

GAME_SKILLS = (
    "Mathematical Reasoning",
    "Logical Deduction",
    "Spatial Reasoning",
    "Pattern Recognition",
    "Optimization",
    "Causal Inference",
)


def _yaml_word(value: Any) -> Any:
    """YAML 1.1 reads the bare words `off`, `no`, `on`, `true` as booleans; give back the word we mean."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else value


def _off_word(value: Any) -> Any:
    return "off" if value is False else value


class Section(BaseModel):
    """Base of every part of the configuration: frozen, closed, documented by its own source."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, validate_default=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Python counts True as 1; a config that says `plays: true` is a mistake."""
        kind = cls.model_fields[info.field_name or ""].annotation
        kinds = {kind, *get_args(kind)}
        if isinstance(value, bool) and kinds & {int, float} and bool not in kinds:
            raise ValueError(f"{value} is not a number")
        return value


class ServingConfig(Section):
    """How completions are sampled."""

    type: str = "local"
    """Engine for checkpoint folders: `local` (in-process torch), another name of `spade list backends`, or
    `file.py:Thing`. Scripted players and endpoints are chosen by the model's name instead."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the weights live; `auto` takes a GPU when one is visible."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Weight type; `auto` is bfloat16 on a GPU and float32 on a CPU."""
    deterministic: bool | None = None
    """Same rows in the same order in every forward pass; unset means yes on a CPU, no elsewhere."""
    max_rows: Positive = 192
    """Sequences decoded together."""
    threads: Positive = 1
    """Torch threads; more than one slows down on a busy machine."""
    context_length: Positive | None = None
    """Tokens a sequence may have; unset means what the checkpoint says."""


class SandboxConfig(Section):
    """Limits for environment programs, which are hostile code."""

    min_level: str = "L2s"
    """Weakest isolation level accepted; `spade doctor` prints the level this machine offers."""
    cpu_seconds: float = Field(default=1.0, gt=0)
    """CPU seconds one call into a program may take."""
    wall_factor: float = Field(default=10.0, ge=1)
    """Wall-clock limit of a call as a multiple of `cpu_seconds`; generous, since the machine may be busy."""
    memory_mb: int = Field(default=128, ge=16)
    """Memory of one worker in MiB."""
    allow_unsafe: bool = False
    """Run with weaker isolation than `min_level`. Only for programs you wrote yourself."""
    max_workers: Positive = 64
    """Worker processes alive at once."""
    force_level: str | None = None
    """Use this level even if a stronger one is available (tests)."""


class ValidateConfig(Section):
    """What a program must prove before it is played."""

    seeds: Positive = 8
    """Seeds of the determinism and solvability checks."""
    contract_seeds: Positive = 3
    """Seeds of the contract check."""
    floor_max: Fraction = 0.34
    """Highest mean return a blind scripted player may reach. 0.05 suits large worlds; the embedded model's
    worlds are so small that a guess is right up to a third of the time."""
    min_oracle_turns: Positive = 1
    """Fewest turns the program's own solution may need (mean over seeds)."""
    stages: dict[str, bool] = {}
    """Stages switched off by name, for example `{novelty: false}`."""
    max_observation_chars: Positive = 4000
    """Longest observation a program may return."""
    max_code_chars: Positive = 20_000
    """Longest program text."""


class MemoryConfig(Section):
    """Earlier programs shown to the Designer with their outcome."""

    enabled: bool = False
    """Show exemplars in the Designer's brief."""
    capacity: Positive = 200
    """Programs remembered."""
    positives: Count = 2
    """Exemplars with high regret per brief."""
    negatives: Count = 1
    """Exemplars with low regret or a rejection per brief."""
    tokens: Positive = 512
    """Token budget of all exemplars in one brief."""


class DesignConfig(Section):
    """The Designer's turn: how many programs, about what, and what failure costs."""

    designs: Positive = 24
    """Designer attempts per design step."""
    attempts: Positive = 5
    """Briefs tried per wanted program before a step goes on with fewer."""
    every: Positive = 2
    """Design new programs every this many steps; between, admitted ones are played again."""
    delay: Count = 0
    """Train a design this many steps after it was made, on the plays of that whole window; 0 = at once."""
    skills: tuple[str, ...] = GAME_SKILLS
    """Skills asked for; each is a group of its own when Designer rewards are centred."""
    skills_per_step: Count = 3
    """Skills drawn for one design step, 0 = all."""
    game_type: Literal["single_turn", "multi_turn", "tool_use"] = "multi_turn"
    """Kind of program asked for."""
    difficulty: str = "medium"
    """Difficulty word in the brief."""
    template: Literal["auto", "short", "full"] = "auto"
    """Prompt length: `auto` is `short` for the embedded model and `full` for instruction-tuned ones."""
    max_tokens: Positive = 256
    """Tokens of one program."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature of the Designer."""
    corpus: str = "builtin"
    """Documents that ground the briefs: `builtin`, or a folder or JSONL file."""
    document_tokens: Count = 96
    """Tokens of the document shown in a brief."""
    invalid_reward: float = 0.0
    """Designer reward of a program the validator rejects."""
    fault_reward: float = 0.0
    """Designer reward of a program that breaks while it is played."""
    duplicate_penalty: float = Field(default=0.3, ge=0)
    """Taken off the reward of a program that equals an earlier one."""
    include_invalid: bool = True
    """Train on rejected attempts too; otherwise they are only counted."""
    memory: MemoryConfig = MemoryConfig()


class HintConfig(Section):
    """Privileged text shown in the hinted arm."""

    source: Literal["policy", "program"] = "policy"
    """Who writes the hint: the model (reading the code) or the program's own `hint()`."""
    temperature: float = Field(default=0.3, ge=0)
    """Sampling temperature when the model writes hints."""
    max_tokens: Positive = 48
    """Tokens of one hint."""
    train: Annotated[Literal["false", "true", "until_nonpositive"], BeforeValidator(_yaml_word)] = "false"
    """Train on hinted plays as well: never, always, or until the mean regret is no longer positive."""
    max_words: Positive = 40
    """Longest hint accepted, in words."""


class PlayConfig(Section):
    """The Agent's turn."""

    plays: Positive = 16
    """Plain plays of one program at one step (the group size G)."""
    hinted_plays: Count = 8
    """Hinted plays of one program; they share their seeds with the first plain plays. 0 = no hinted arm."""
    max_turns: Positive = 25
    """Turn limit of an episode, on top of the program's own."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature of the Agent."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling; keep 1 for training, since log-probs are over the full vocabulary."""
    top_k: Count = 0
    """Keep the k likeliest tokens, 0 = all; keep 0 for training."""
    max_tokens: Positive = 24
    """Tokens of one turn."""
    programs: Positive = 12
    """Programs played per step."""
    replay: Literal["archive", "window"] = "archive"
    """What fills a step after the new programs: admitted ones at the edge of the Agent's skill, whenever
    they were made, or the programs of the present design window again (as published)."""


class RewardConfig(Section):
    """What the Designer is paid for."""

    type: Literal["blend", "regret", "regret_lcb", "solve_rate", "learnability"] = "blend"
    """Reward of an accepted program: regret and plateau mixed, regret, its lower confidence bound, nearness
    of the solve rate to the band, or p(1 - p)."""
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
    skill_gate: bool = True
    """Multiply by how far skilled play beats the best blind action sequence; a game of luck earns 0."""
    gate_margin: float = Field(default=0.1, ge=0)
    """Lead over the blind floor below which the gate is 0."""
    gate_width: float = Field(default=0.2, gt=0)
    """Further lead at which the gate is 1."""
    gate_z: float = Field(default=0.0, ge=0)
    """Standard errors subtracted from the lead before the gate (a lower bound); 0 = the plain estimate."""

    @model_validator(mode="after")
    def _band(self) -> RewardConfig:
        if self.band_low > self.band_high:
            raise ValueError(f"band_low {self.band_low} is above band_high {self.band_high}")
        return self


class LearnerConfig(Section):
    """The policy-gradient update."""

    type: Literal["compact"] = "compact"
    """`compact` is the plain-torch learner."""
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
    tis_max: float = Field(default=2.0, gt=0)
    """Cap of the truncated importance weight between sampling and training log-probs."""
    loss: Literal["grpo", "dapo", "dr_grpo"] = "dapo"
    """Aggregation: mean per sequence, mean over tokens, or sum over a constant."""
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
    designer_scale: Literal["std", "reference"] = "std"
    """Designer advantages are centred per skill, then divided by their spread in the set, or multiplied by
    how much rarer they are than Agent samples (as published)."""
    advantage: Literal["zscore", "mean", "loo"] = "zscore"
    """Agent baseline: centre and divide by (std + floor), centre only, or leave one out."""
    std_floor: float = Field(default=0.1, gt=0)
    """Added to the group's standard deviation in `zscore`."""


class TrainConfig(Section):
    """The loop."""

    steps: Positive = 60
    """Optimiser steps, unless the budget ends the run first."""
    source: str = "self_play"
    """Where programs come from: `self_play`, `fixed_pool`, another name of `spade list sources`, or
    `file.py:Thing`."""
    pool: str | None = None
    """Folder of a made pool for `fixed_pool`; unset means: sample one from the start model."""
    pool_size: Positive = 64
    """Size of a pool that `fixed_pool` makes for itself; `budget.like` sets it to what that run accepted."""
    checkpoint_every: Positive = 10
    """Steps between checkpoints; the last step is always saved."""
    keep: Positive = 3
    """Checkpoints kept; older ones are deleted."""
    max_fault_share: Fraction = 0.2
    """Stop when a larger share of one step's plays is lost to infrastructure faults."""


class BudgetConfig(Section):
    """A limit in sampled tokens, so that two runs can be compared at equal cost."""

    total_tokens: Positive | None = None
    """Stop when the ledger's total of sampled tokens (designs, hints, plays) reaches this."""
    like: str | None = None
    """Take `total_tokens`, and for a fixed pool its size, from the ledger of this finished run folder; it
    wins over a `total_tokens` that a config file gives."""


class EvalConfig(Section):
    """Evaluation that belongs to the run."""

    suite: str = "heldout"
    """Suite name; see `spade list suites`."""
    every: Count = 0
    """After training, also evaluate each kept checkpoint whose step is a multiple of this; 0 = none."""
    episodes: Positive | None = None
    """Items evaluated; unset means the whole suite."""
    seed: Count = 0
    """Fixes items and sampling; keep it equal across runs that are going to be compared."""
    at_end: bool = False
    """Evaluate the last checkpoint when training is done."""


class Config(Section):
    """Everything a run depends on. Equal digest (all but `out`) means: the same experiment."""

    name: str = Field(default="demo", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the configuration; part of the default run folder."""
    seed: int = Field(default=0, ge=0)
    """Root of every random decision."""
    out: str | None = None
    """Run folder; unset means `runs/<name>-s<seed>`."""
    model: str = "embedded"
    """Start checkpoint: `embedded`, a folder, a run folder, or a model name."""
    serving: ServingConfig = ServingConfig()
    sandbox: SandboxConfig = SandboxConfig()
    validator: ValidateConfig = ValidateConfig()
    design: DesignConfig = DesignConfig()
    hints: HintConfig = HintConfig()
    play: PlayConfig = PlayConfig()
    reward: RewardConfig = RewardConfig()
    learner: LearnerConfig = LearnerConfig()
    train: TrainConfig = TrainConfig()
    budget: BudgetConfig = BudgetConfig()
    eval: EvalConfig = EvalConfig()
