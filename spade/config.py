"""The configuration of a run: one frozen tree of pydantic models, and nothing else.

Every field is explained by the string under it; `spade config schema` prints the same text. The defaults are
the sizes of the five-minute demo on two CPU cores. Files, `extends` and `key=value` overrides are read by
`spade.config_load`, never here. An unknown key is an error: an option that is accepted and ignored is worse
than none.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from spade.config_base import Count, Fraction, Positive, Section
from spade.config_sources import DatasetConfig, ProceduralConfig
from spade.config_track import TrackConfig
from spade.config_trl import TrlConfig
from spade.config_vllm import VllmConfig

GAME_SKILLS = (
    "Mathematical Reasoning",
    "Logical Deduction",
    "Spatial Reasoning",
    "Pattern Recognition",
    "Optimization",
    "Causal Inference",
)

TOOL_SKILLS = (
    "API Orchestration",
    "Data Retrieval",
    "State Modification",
    "Error Recovery",
    "Tool Selection",
    "Multi-Step Workflows",
)

TOOL_DOMAINS = (
    "retail orders",
    "flights and hotels",
    "telecom accounts",
    "banking",
    "calendar",
    "file system",
    "shopping cart",
    "support tickets",
    "smart home",
    "project tracker",
)


def _yaml_word(value: Any) -> Any:
    """YAML 1.1 reads the bare words `off`, `no`, `on`, `true` as booleans; give back the word we mean."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else value


def _off_word(value: Any) -> Any:
    return "off" if value is False else value


class EndpointConfig(Section):
    """How endpoints (`openai:MODEL@URL`) are asked."""

    parallel: Positive = 16
    """Requests in flight at once."""
    timeout: float = Field(default=600.0, gt=0)
    """Seconds for one answer, all attempts and pauses together."""
    drop: tuple[Literal["top_k", "tools", "logprobs", "seed"], ...] = ()
    """What may be left out where an endpoint ignores or refuses it; without this it is an error. Tools are
    then listed in the system message."""


class ServingConfig(Section):
    """How completions are sampled."""

    type: str = "local"
    """Engine for checkpoint folders: `local` (in-process torch), `vllm`, another name of
    `spade list backends`, or `file.py:Thing`. Scripted players and endpoints are chosen by the model's name
    instead."""
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
    shards: Count = 0
    """Engines on the nodes of a Ray cluster (extra `ray`) among which sequences are divided; 0 = one engine
    in this process."""
    endpoint: EndpointConfig = EndpointConfig()
    """Models behind an address."""
    vllm: VllmConfig = VllmConfig()
    """The engine `vllm`."""


class SandboxConfig(Section):
    """Limits for environment programs, which are hostile code."""

    min_level: str = "L2s"
    """Weakest isolation level accepted; `spade doctor` prints the level this machine offers."""
    cpu_seconds: float = Field(default=1.0, gt=0)
    """CPU seconds one call into a program may take."""
    wall_factor: float = Field(default=10.0, ge=1)
    """Wall-clock limit of a call as a multiple of `cpu_seconds`; generous, since the machine may be busy."""
    memory_mb: int = Field(default=128, ge=16)
    """Memory of one worker in MiB beyond what it starts with. All workers together take at most `max_workers`
    times as much."""
    allow_unsafe: bool = False
    """Run with weaker isolation than `min_level`. Only for programs you wrote yourself."""
    max_workers: Positive = 64
    """Worker processes alive at once."""
    episodes_per_worker: Positive = 64
    """Times a worker is handed out, to be reset and played, before a new one takes its place; 1 = a new one
    each time. Only for programs that validation showed to keep their episodes apart."""
    force_level: str | None = None
    """Use this level even if a stronger one is available (tests)."""
    nodes: Literal["local", "ray"] = "local"
    """Where programs run: on this machine, or on every node of a Ray cluster (extra `ray`), with these limits
    on each."""
    numpy: bool = False
    """Let programs import numpy. A worker's memory is counted beyond what numpy itself takes."""


class JudgeConfig(Section):
    """The language model of the stage `judge`, which is off unless `validator.stages` switches it on."""

    model: str | None = None
    """Who judges: a checkpoint, a folder or `openai:MODEL@URL`; unset means the Designer's own model."""
    temperature: float = Field(default=0.3, ge=0)
    """Sampling temperature."""
    max_tokens: Positive = 4096
    """Tokens of one reply, thought included; a reply cut short gives no verdict."""


class ValidateConfig(Section):
    """What a program must prove before it is played."""

    seeds: Positive = 8
    """Seeds of the determinism and solvability checks."""
    contract_seeds: Positive = 3
    """Seeds of the contract check."""
    floor_max: Fraction = 0.05
    """Highest mean return a blind scripted player may reach. The embedded model's worlds are so small that a
    guess is right up to a third of the time: its configs say 0.34. Above 0.2 the checks of games whose
    solution is a list are laxer too."""
    min_oracle_turns: Positive = 1
    """Fewest turns the program's own solution may need (mean over seeds)."""
    seconds: float = Field(default=600.0, gt=0)
    """Deadline of the validation of one program, and of all verdicts of one try of a design step; a program
    without one by then is lost, as a design whose answer never came."""
    stages: dict[str, bool | dict[str, Any]] = Field(default_factory=dict)
    """Stages by name: false, true, or parameters, for example `{novelty: false, floor: {seeds: 32}}`; names
    that are not built in are registered stages or `file.py:function`."""
    judge: JudgeConfig = JudgeConfig()
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
    rejected: Count = 50
    """Rejected programs among those remembered, as negatives with their reason; 0 = none."""
    regret_z: float = Field(default=1.0, ge=0)
    """Standard errors taken off the regret when positives are ranked."""
    near_duplicate: float = Field(default=0.9, gt=0, le=1)
    """Of programs this similar (Jaccard index of token runs) only the newest is remembered."""


class VariantsConfig(Section):
    """Weights of the tool-use task variants, one drawn for each brief; all 0 = the model chooses."""

    plain: float = Field(default=3.0, ge=0)
    """The instructions say all that is needed."""
    conditional: float = Field(default=2.0, ge=0)
    """A change depends on a value that has to be read first."""
    missing: float = Field(default=1.0, ge=0)
    """The user leaves out a value, which has to be found."""
    decline: float = Field(default=1.0, ge=0)
    """One request is served by no tool and has to be declined."""


class DesignConfig(Section):
    """The Designer's turn: how many programs, about what, and what failure costs."""

    policy: str = "shared"
    """Who designs: `shared` (the one policy that also plays), `frozen` (the start weights, never trained),
    `separate` (a second copy that learns from its designs only), or another model such as
    `openai:MODEL@URL` or a checkpoint folder, which never changes. `scripted:mechanics` is no model: it draws
    sound programs of all difficulties from the embedded model's mechanics."""
    designs: Positive = 24
    """Designer attempts per design step."""
    attempts: Positive = 5
    """Briefs tried per wanted program before a step goes on with fewer."""
    every: Positive = 2
    """Design new programs every this many steps; between, admitted ones are played again."""
    delay: Count = 0
    """Train a design this many steps after it was made, on the plays of that whole window; 0 = at once."""
    skills: tuple[str, ...] = Field(default=GAME_SKILLS, min_length=1)
    """Skills asked for; each is a group of its own when Designer rewards are centred. Tool use has six of its
    own, which take the place of the default."""
    skills_per_step: Count = 3
    """Skills drawn for one design step, 0 = all."""
    game_type: Literal["single_turn", "multi_turn", "tool_use"] = "multi_turn"
    """Kind of program asked for."""
    domains: tuple[str, ...] = TOOL_DOMAINS
    """Domains of tool-use programs, one drawn for each brief; empty = the model chooses."""
    variants: VariantsConfig = VariantsConfig()
    difficulty: str = "medium"
    """Difficulty word in the brief."""
    template: Literal["auto", "short", "full"] = "auto"
    """Prompt length: `auto` is `short` for the embedded model and `full` for instruction-tuned ones."""
    max_tokens: Positive = 256
    """Tokens of one program."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature of the Designer."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling of the Designer; keep 1 for training."""
    top_k: Count = 0
    """Keep the k likeliest tokens of the Designer, 0 = all; keep 0 for training."""
    thinking: bool | None = None
    """Let the Designer think before it writes; unset means the model's own default."""
    corpus: str = "builtin"
    """Documents that ground the briefs: `builtin`, a folder or file (.jsonl, .txt, .md), a hub data set as
    `hub:owner/name[@revision][:config][:split]`, or `none` (briefs name ideas for the skill instead)."""
    corpus_sample: Positive = 15_000
    """Documents of the sample that is taken once from a hub data set."""
    document_tokens: Count = 96
    """Tokens of the document shown in a brief."""
    document_words: Positive = 6000
    """Longer documents are cut to this many words first (as published: 6,000 in games, 4,000 in tool use)."""
    repair_turns: Count = 0
    """Further turns in which a rejected program may be repaired, told the validator's reason. The repaired
    program is played, but the first turn alone is trained, as a rejected one."""
    seconds: float = Field(default=300.0, gt=0)
    """Deadline of one design where requests run side by side; a design that misses it is lost, the others are
    kept. In-process engines answer in one batch and are bounded by `max_tokens` instead."""
    min_oracle_turns: Positive | None = None
    """Fewest turns the program's solution may need when a brief asks for several; unset: 3 with the full
    prompt, with the short one (the embedded model's small worlds) `validator.min_oracle_turns`."""
    phase_seconds: float = Field(default=900.0, gt=0)
    """No further attempt is begun this long after a design phase began, and none waits longer."""
    refuse_duplicates: Literal["identical", "equal", "near"] = "equal"
    """Programs refused as duplicates of an earlier one: the same text, equal up to names and comments, or
    nearly the same as well (`near_duplicate`)."""
    near_duplicate: float = Field(default=0.9, gt=0, le=1)
    """Similarity (Jaccard index of token runs) from which on `near` refuses a program."""
    quota: Count = 0
    """Most programs of one structure (equal up to names and constants) accepted per set and skill; 0 = no
    limit."""
    novelty_weight: float = Field(default=0.0, ge=0)
    """Added to the reward: this much times the distance of the program from the nearest remembered one."""
    guide_weight: float = Field(default=0.0, ge=0)
    """Weight of the guide score, the model's own opinion on relevance and clarity; 0 = it is not asked."""
    guide_mode: Literal["multiply", "shift"] = "multiply"
    """How the guide score s acts: reward * (1 - weight * (1 - s)), or reward + weight * (s - 0.5)."""
    invalid_reward: float = 0.0
    """Designer reward of a program the validator rejects."""
    fault_reward: float = 0.0
    """Designer reward of a program that breaks while it is played."""
    duplicate_penalty: float = Field(default=0.3, ge=0)
    """Taken off the reward of a program that equals an earlier one."""
    include_invalid: bool = True
    """Train on rejected attempts too; otherwise they are only counted."""
    memory: MemoryConfig = MemoryConfig()

    @model_validator(mode="before")
    @classmethod
    def _own_skills(cls, value: Any) -> Any:
        """Tool use has skills of its own; the default of games means: not chosen."""
        if isinstance(value, dict) and value.get("game_type") == "tool_use":
            chosen = value.get("skills", GAME_SKILLS)
            if isinstance(chosen, list | tuple) and tuple(chosen) == GAME_SKILLS:
                return {**value, "skills": TOOL_SKILLS}
        return value

    @model_validator(mode="after")
    def _guide(self) -> DesignConfig:
        if self.guide_mode == "multiply" and self.guide_weight > 1:
            raise ValueError(f"guide_weight {self.guide_weight} is above 1, which multiply cannot use")
        return self


class HintConfig(Section):
    """Privileged text shown in the hinted arm."""

    source: Literal["policy", "program", "solution"] = "policy"
    """Who writes the hint: the model (reading the code), the program's own `hint()`, or nobody: `solution`
    shows each play the solution of its seed, as a hint does that nobody checks for the answer. It needs
    `checks: false`."""
    temperature: float = Field(default=0.3, ge=0)
    """Sampling temperature when the model writes hints."""
    max_tokens: Positive = 48
    """Tokens of one hint."""
    train: Annotated[Literal["false", "true", "until_nonpositive"], BeforeValidator(_yaml_word)] = "false"
    """Train on hinted plays as well: never, always, or until the mean regret is no longer positive."""
    max_words: Positive = 40
    """Longest hint accepted, in words."""
    checks: bool = True
    """Refuse hints that hold an answer, name what only the code knows, or win without a look at the game. Off
    (as published): every hint that is not too long is shown."""
    tries: Positive = 3
    """Hints the model may write for one program until one passes the checks."""
    seconds: float = Field(default=120.0, gt=0)
    """Deadline of one hint where requests run side by side; a hint that misses it is tried again."""
    phase_seconds: float = Field(default=900.0, gt=0)
    """No further try is begun this long after the hints of a step were begun, and none is waited for longer;
    a program whose hint is not written and checked by then has none."""
    thinking: bool | None = None
    """Let the model think before it writes a hint; unset means the model's own default."""


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
    reserve: Count = 0
    """Tokens of the context that a turn leaves free: it gets min(max_tokens, what is left - reserve)."""
    thinking: bool | None = None
    """Let the Agent think before it acts, in both arms; unset means the model's own default. Passed to the
    chat template as `enable_thinking`."""
    codec: str = "auto"
    """How replies are read: `auto` (by the kind of program), `boxed`, `tool_calls`, another name of
    `spade list codecs`, or `file.py:Thing`."""
    programs: Positive = 12
    """Programs played per step."""
    seconds: float = Field(default=14_400.0, gt=0)
    """Deadline of the plays of one step (of a chunk, in an evaluation). Plays that have not ended by then are
    infrastructure faults; those that have are kept."""
    returns: Literal["outcome", "progress"] = "outcome"
    """Return of a play: `outcome` is the last reward if the program ended the play, else 0; `progress` is the
    best reward on the way, at least 0 and below 1 unless the goal was reached."""
    replay: Literal["archive", "window", "plr"] = "archive"
    """What fills a step after the new programs: admitted ones at the edge of the Agent's skill, whenever
    they were made; the programs of the present design window again (as published); or those of high regret
    (prioritised level replay)."""
    replay_temperature: float = Field(default=0.1, gt=0)
    """`plr`: a program of rank r by its regret is drawn with weight r ** (-1 / temperature)."""
    replay_staleness: Fraction = 0.1
    """`plr`: share of the draws that go by how long ago a program was played."""
    replay_capacity: Positive = 240
    """`plr`: programs kept; the one with the lowest score leaves first."""


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


class LensConfig(Section):
    """What is measured of the output distribution while training; it neither trains nor counts as tokens."""

    every: Count = 10
    """Steps between measurements, besides the first and the last; 0 = off."""
    prompts: Positive = 8
    """Frozen training prompts of each role, and frozen texts from the corpus."""
    samples: Positive = 2
    """Fresh designs for each frozen brief."""
    programs: Count = 8
    """Unseen programs of the embedded model's mechanics that the Agent plays; 0 = none. There are none of
    the kind single-turn."""
    plays: Positive = 8
    """Plays of each, always with the same seeds: the k of the largest pass@k."""
    reference: bool | None = None
    """Keep a copy of the start model, for the divergence of the present policy from it; unset means up to 50
    million weights."""


class TrainConfig(Section):
    """The loop."""

    steps: Positive = 60
    """Optimiser steps, unless the budget ends the run first."""
    source: str = "self_play"
    """Where programs come from: `self_play`, `fixed_pool`, another name of `spade list sources`, or
    `file.py:Thing`."""
    pool: str | None = "starter"
    """Pool of `fixed_pool`: one that comes with the package (`starter`), a folder or file of programs, or
    `hub:OWNER/NAME@COMMIT`; null means: sample one from the start model."""
    pool_validate: bool = True
    """Judge the programs of a pool whose verdict does not hold here before the first step, and leave out what
    is refused."""
    pool_size: Positive = 64
    """Size of a pool that `fixed_pool` makes for itself; `budget.like` sets it to what that run accepted."""
    pool_order: Literal["epochs", "archive", "plr"] = "epochs"
    """How `fixed_pool` chooses: shuffled epochs without replacement (published), or with replacement by what
    is known of each program, as self-play's `play.replay` does."""
    staleness: Literal[0, 1] = 0
    """1: the update of a step runs while the next step is generated, with weights that lack that update; the
    truncated importance weight (`learner.tis_max`) corrects for it. 0: one after the other."""
    stage_seconds: float = Field(default=14_400.0, gt=0)
    """Deadline of the stages that have none of their own (blind floor, lens, evaluation, checkpoint); the run
    ends with an error if one takes longer."""
    checkpoint_every: Positive = 10
    """Steps between checkpoints; the last step is always saved."""
    keep: Positive = 3
    """Checkpoints kept; older ones are deleted."""
    max_fault_share: Fraction = 0.2
    """Stop when a larger share of one step's plays is lost to infrastructure faults."""
    lens: LensConfig = LensConfig()
    """The entropy lens."""
    token_rows: Count = 1
    """Programs of each step of which a plain and a hinted play are kept token by token, for the report."""


class BudgetConfig(Section):
    """A limit in sampled tokens, so that two runs can be compared at equal cost."""

    total_tokens: Positive | None = None
    """Stop when the ledger's total of sampled tokens (designs, hints, plays) reaches this."""
    train_tokens: Positive | None = None
    """Stop when the ledger's count of tokens trained on reaches this."""
    train_plays: Positive | None = None
    """Stop when the ledger's count of plain plays reaches this."""
    match: Literal["total_tokens", "train_tokens", "train_plays"] = "total_tokens"
    """What `budget.like` makes equal: all sampled tokens (designs, hints and rejected attempts included),
    the tokens trained on, or the plain plays."""
    like: str | None = None
    """Take the amount named by `budget.match`, and for a fixed pool its size, from the ledger of this
    finished run folder; it wins over an amount that a config file gives."""


class EvalConfig(Section):
    """Evaluation that belongs to the run."""

    suite: str = "heldout"
    """Suite name; see `spade list suites`."""
    every: Count = 1
    """While training, evaluate the start model and each n-th checkpoint; 0 = never."""
    checkpoint_suite: str | None = None
    """Suite of these evaluations; unset means `suite`."""
    checkpoint_items: Positive = 128
    """Items of these evaluations: few, since what they are for is the curve."""
    episodes: Positive | None = None
    """Items evaluated at the end; unset means the whole suite."""
    seed: Count = 0
    """Fixes items and sampling; keep it equal across runs that are going to be compared."""
    at_end: bool = True
    """Evaluate the last checkpoint when training is done, on `episodes` items of `suite`."""
    compare: bool = True
    """After an evaluation that belongs to the run, compare it with the start model and with the baselines of
    equal start and budget that are found; what is missing is named with its command."""
    results: tuple[str, ...] = ("results/runs",)
    """Folders in which they are looked for, beside the run's own."""


class Config(Section):
    """Everything a run depends on. Equal digest (all but `out` and `track`) means: the same experiment."""

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
    procedural: ProceduralConfig = ProceduralConfig()
    dataset: DatasetConfig = DatasetConfig()
    budget: BudgetConfig = BudgetConfig()
    eval: EvalConfig = EvalConfig()
    track: TrackConfig = TrackConfig()
