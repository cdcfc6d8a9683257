"""From a document to a judged program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from spade.types_text import GameType, Message, Trajectory, content_id


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
    cut_off: bool = False
    """The reply ended at a limit and not by itself."""

    @property
    def repaired(self) -> bool:
        """Whether a repair turn brought a program that may be played; the first turn counts as rejected."""
        return self.first_verdict is not None

    @property
    def sampled_tokens(self) -> int:
        """All tokens the model produced for this design."""
        return self.trajectory.sampled_tokens + self.extra_tokens
