"""The configuration of a run: one frozen tree of pydantic models, and nothing else.

Every field is explained by the string under it; `spade config schema` prints the same text. The defaults are
the sizes of the five-minute demo on two CPU cores. Files, `extends` and `key=value` overrides are read by
`spade.config_load`, never here. An unknown key is an error: an option that is accepted and ignored is worse
than none.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from spade.config_base import Count, Fraction, Positive, Section
from spade.config_design import (
    GAME_SKILLS,
    TOOL_DOMAINS,
    TOOL_SKILLS,
    DesignConfig,
    HintConfig,
    MemoryConfig,
    VariantsConfig,
)
from spade.config_learn import LearnerConfig, RewardConfig
from spade.config_sources import DatasetConfig, ProceduralConfig
from spade.config_track import TrackConfig
from spade.config_trl import TrlConfig
from spade.config_vllm import VllmConfig

# The parts that have a file of their own are handed on: whoever reads the configuration needs one import.
__all__ = [
    "GAME_SKILLS",
    "TOOL_DOMAINS",
    "TOOL_SKILLS",
    "BudgetConfig",
    "Config",
    "DatasetConfig",
    "DesignConfig",
    "EndpointConfig",
    "EvalConfig",
    "HintConfig",
    "JudgeConfig",
    "LearnerConfig",
    "LensConfig",
    "MemoryConfig",
    "PlayConfig",
    "ProceduralConfig",
    "RewardConfig",
    "SandboxConfig",
    "ServingConfig",
    "TrackConfig",
    "TrainConfig",
    "TrlConfig",
    "ValidateConfig",
    "VariantsConfig",
    "VllmConfig",
]


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
    """Weight type; `auto` is float32 up to 20 million weights, and for more of them bfloat16 where the
    hardware multiplies it (a GPU, or a CPU with AVX512-BF16 or AMX)."""
    deterministic: bool | None = None
    """Same rows in the same order in every forward pass; unset means yes on a CPU, no elsewhere."""
    max_rows: Positive = 192
    """Sequences decoded together."""
    threads: Positive = 1
    """Torch threads; more than one slows down on a busy machine."""
    context_length: Positive | None = None
    """Tokens a sequence may have; unset means what the checkpoint says."""
    shards: Count = 0
    """Engines on the nodes of a Ray cluster (extra `ray`) among which sequences, in `spade eval` items, are
    divided; 0 = one engine in this process."""
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
