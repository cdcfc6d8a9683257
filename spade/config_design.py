"""Configuration of the Designer: briefs, memory, what is designed, and the hints."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from spade.config_base import Count, Positive, Section

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
