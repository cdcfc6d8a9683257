"""The records that travel through SPADE, in the order one datum meets them.

    Document ──brief──► Brief ──Designer──► EnvProgram ──validate──► Verdict (StageResult, ...)
                                                │
                                        Instance (program, seed, hint)
                                                │  play
                     Turn, ..., Turn ──► Trajectory ──► Episode (Trajectory + Outcome)
                                                │
                          Group (plain episodes, hinted episodes, same seeds)
                                                │  regret
                               Regret ──► Designer reward ──► Credit
                                                │  advantages
                                 Sample (neutral record: tokens, mask, advantage) ──► learner

    Item ──evaluate──► ItemResult ──► SuiteResult ──► Comparison;  RunRecord says where all of it came from.

Words: the *Designer* writes an *environment program*; the *Agent* plays an *episode* of it; a *hint* is
privileged text about it; *regret* is return with the hint minus return without. A *fault* is not a score:
an `Outcome` is either `Scored` or `Fault`, so that a mean over outcomes has to say what it does with faults.

Ragged lists carry their axis as suffix where it helps: `_T` tokens, `_G` plays of a group, `_B` rows.
Records are frozen; `to_json` / `from_json` (`spade.codec`) are the one codec.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal

from spade.codec import from_json as from_json
from spade.codec import to_json as to_json
from spade.errors import FaultKind

Role = Literal["designer", "agent"]
GameType = Literal["single_turn", "multi_turn", "tool_use"]
GAME_TYPES: tuple[GameType, ...] = ("single_turn", "multi_turn", "tool_use")


def content_id(text: str) -> str:
    """SHA-256 of UTF-8 text, the id of everything that has content."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# --- messages and tokens -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One parsed call: tool name and JSON arguments."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `content` is hostile text: it is never encoded with special tokens enabled."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    name: str | None = None


class StopReason(StrEnum):
    """Why one completion ended."""

    STOP = "stop"
    """A stop token was sampled: the model finished its turn."""
    LENGTH = "length"
    """`max_tokens` was reached."""
    CONTEXT = "context"
    """The context window was full."""
    CANCELLED = "cancelled"
    """The caller gave up."""


class EpisodeEnd(StrEnum):
    """Every way an episode can end. Only `FAULT` has no score."""

    TERMINATED = "terminated"
    """The program said the goal is reached or lost; the last reward counts."""
    TRUNCATED = "truncated"
    """The program's own turn limit; scored 0."""
    TURN_LIMIT = "turn_limit"
    """The loop's turn limit; scored 0."""
    CONTEXT_LIMIT = "context_limit"
    """No room for another turn; scored 0."""
    UNFINISHED = "unfinished"
    """A reply without an end-of-turn token; not played, scored 0."""
    FAULT = "fault"
    """The program or the machinery broke; no score."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange: what the policy said, what the program answered.

    `logprobs_T` has one entry per completion token, taken at the sampling temperature.
    """

    completion_ids: tuple[int, ...]
    logprobs_T: tuple[float, ...]
    text: str
    action: str
    observation: str
    reward: float
    stop: StopReason
    malformed: bool = False
    """No tool call and no answer could be read from the reply; a learner may leave its tokens out."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Token stream of one role in one task: `prompt_ids` then `completion_ids`.

    `completion_ids`, `mask`, `logprobs` have equal length. `mask` is 1 exactly on tokens the model sampled,
    0 on observations and template; `logprobs` is 0.0 where `mask` is 0.
    """

    role: Role
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    weight_version: int = 0

    @property
    def sampled_tokens(self) -> int:
        """Number of tokens the model itself produced."""
        return sum(self.mask)


# --- design --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Document:
    """One corpus text. `id` is its content hash; `meta` are the other fields of its row."""

    id: str
    text: str
    source: str
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Brief:
    """Everything the Designer is shown for one attempt."""

    id: str
    skill: str
    game_type: GameType
    difficulty: str
    document_id: str
    exemplar_ids: tuple[str, ...]
    seed: int
    messages: tuple[Message, ...]
    domain: str = ""
    variant: str = ""
    """Domain and task variant asked for; tool use only."""


@dataclass(frozen=True, slots=True)
class EnvProgram:
    """Source code of one environment. `id` is the content hash of `code`."""

    id: str
    code: str
    skill: str = ""
    game_type: GameType = "multi_turn"
    brief_id: str = ""
    hint: str | None = None
    step: int = 0
    source: str = "designer"

    @staticmethod
    def of(code: str, **fields: Any) -> EnvProgram:
        """Make a program from its code; the id is computed."""
        return EnvProgram(id=content_id(code), code=code, **fields)


@dataclass(frozen=True, slots=True)
class StageResult:
    """Outcome of one validation stage. `code` is "ok" or the stage's reason code."""

    stage: str
    ok: bool
    code: str
    detail: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the validator says of one program. No verdict means rejected."""

    program_id: str
    accepted: bool
    stages: tuple[StageResult, ...]
    battery: str
    level: str
    facts: dict[str, float] = field(default_factory=dict)
    """Measured by the battery: `oracle_turns`, `oracle_return`, `floor_return`, `max_turns`."""
    seeds: tuple[int, ...] = ()
    """Seeds the solution was played on."""
    python: str = ""
    """Python version of the sandbox, such as `3.11.7`."""
    sketch: str = ""
    """What the game looks like with all that depends on the seed masked; see `spade.envs.duplicates`."""
    judged: bool = True
    """False where the stage `judge` could not reach its model, or time ran out: nobody's verdict, and nobody
    pays."""

    @property
    def failed(self) -> StageResult | None:
        """The first failed stage, or None."""
        return next((s for s in self.stages if not s.ok), None)

    @property
    def code(self) -> str:
        """Reason code of the first failed stage; "accepted" otherwise."""
        failed = self.failed
        return failed.code if failed else "accepted"


@dataclass(frozen=True, slots=True)
class Design:
    """One attempt of the Designer: its trajectory, what came out, and the validator's verdict.

    `trajectory` and `text` are the first turn, the only one that is trained. After a repair `program` and
    `verdict` belong to the repaired program, and `first_verdict` says why the first turn was rejected.
    """

    brief: Brief
    trajectory: Trajectory
    text: str
    program: EnvProgram | None
    verdict: Verdict | None
    first_verdict: Verdict | None = None
    novelty: float | None = None
    """Distance of the program from the nearest remembered one, in [0, 1]; None when it was not measured."""
    guide: float | None = None
    """The model's own opinion of the program, in [0, 1]; None when it was not asked or gave none."""
    extra_tokens: int = 0
    """Tokens sampled for this design outside its trajectory: repair turns and guide."""

    @property
    def repaired(self) -> bool:
        """Whether a repair turn brought a program that may be played; the first turn counts as rejected."""
        return self.first_verdict is not None

    @property
    def sampled_tokens(self) -> int:
        """All tokens the model produced for this design."""
        return self.trajectory.sampled_tokens + self.extra_tokens


# --- play ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Instance:
    """One playable task: program, seed, and the hint shown in the first observation (None = plain arm)."""

    program_id: str
    seed: int
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """A play with a value. `value` is the return in [-1, 1]; `solved` means full return."""

    tagged: ClassVar[bool] = True
    value: float
    solved: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """A play without a value: who broke it, where, and what was seen."""

    tagged: ClassVar[bool] = True
    kind: FaultKind
    where: str
    detail: str


Outcome = Scored | Fault


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished play.

    Where the chat template drops earlier thoughts, no single token stream holds all turns: `trajectory` is
    the first stream, `later` has one more for every turn whose prompt does not extend the stream before it.
    """

    instance: Instance
    trajectory: Trajectory
    turns: tuple[Turn, ...]
    first_observation: str
    outcome: Outcome
    end: EpisodeEnd
    seconds: float = 0.0
    later: tuple[Trajectory, ...] = ()

    @property
    def trajectories(self) -> tuple[Trajectory, ...]:
        """All token streams in the order of the turns; they belong to one episode and share its credit."""
        return (self.trajectory, *self.later)

    @property
    def sampled_tokens(self) -> int:
        """Number of tokens the model itself produced, over all streams."""
        return sum(t.sampled_tokens for t in self.trajectories)

    @property
    def truncated(self) -> bool:
        """Whether a limit (turns, context, tokens) ended the episode, neither the program nor a fault."""
        return self.end not in (EpisodeEnd.TERMINATED, EpisodeEnd.FAULT)

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions as the program received them, in order."""
        return tuple(t.action for t in self.turns)


@dataclass(frozen=True, slots=True)
class Group:
    """All plays of one program at one step. `hinted[i]` and `plain[i]` share a seed where both exist."""

    program: EnvProgram
    plain: tuple[Episode, ...]
    hinted: tuple[Episode, ...] = ()


@dataclass(frozen=True, slots=True)
class Regret:
    """Mean paired difference hinted minus plain. `stderr` is NaN when `n` < 2; faults drop the pair."""

    mean: float
    stderr: float
    n: int
    faults: int


# --- learn ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Credit:
    """What one trajectory earns: its advantage, broadcast to every sampled token, and its loss weight.

    Trajectories with the same non-empty `episode` are parts of one play.
    """

    trajectory: Trajectory
    advantage: float
    weight: float = 1.0
    group: str = ""
    episode: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """The neutral training record. A learner sees nothing else: no roles' meaning, no environments.

    `completion_ids`, `mask`, `logprobs` have equal length (see `Trajectory`). `advantage` is one number for
    all sampled tokens; `weight` multiplies this sample's loss; `role` only names the optimiser state. Samples
    of one `group` were compared with each other; samples with the same non-empty `episode` are parts of one
    play and count as one where a loss averages over plays.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    advantage: float
    role: str
    weight: float = 1.0
    group: str = ""
    episode: str = ""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one training step did: flat metric names to numbers."""

    step: int
    metrics: dict[str, float]


# --- runs and evaluation -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Provenance of one run; written as `run.json` and copied to `results/records/` when published."""

    id: str
    kind: str
    command: str
    config: dict[str, Any]
    digest: str
    seed: int
    versions: dict[str, str]
    hardware: dict[str, Any]
    data: dict[str, str]
    sandbox_level: str
    started: str
    status: str = "running"
    parents: tuple[str, ...] = ()
    artefacts: dict[str, str] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)
    ledger: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Item:
    """One evaluation item: stable id, the part of the suite it belongs to, and its cluster."""

    id: str
    part: str
    cluster: str
    payload: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ItemResult:
    """One sample of one item."""

    item_id: str
    part: str
    cluster: str
    sample: int
    outcome: Outcome
    end: str
    tokens: int
    text: str = ""
    facts: dict[str, float] = field(default_factory=dict)
    """Numbers about the item besides its value, such as the turns it took; the suite says what they mean."""


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """One suite on one checkpoint. `parts` maps a part to (mean, standard error, n); `score` likewise."""

    suite: str
    checkpoint: str
    protocol: str
    score: tuple[float, float, int]
    parts: dict[str, tuple[float, float, int]]
    faults: dict[str, int]
    tokens: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One checkpoint against a reference on the same items: paired difference and its 95 % interval."""

    name: str
    reference: str
    column: str
    score: float
    stderr: float
    difference: float
    low: float
    high: float
    n: int
    words: str
