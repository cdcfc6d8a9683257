"""What a learner is given, and what one step reports."""

from __future__ import annotations

from dataclasses import dataclass

from spade.types_text import Trajectory


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
