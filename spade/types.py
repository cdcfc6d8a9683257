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
Records are frozen; `to_json` / `from_json` (`spade.codec`) are the one codec. They are written down in
`types_*.py`, a module for each noun, and imported from here.
"""

from __future__ import annotations

from spade.codec import from_json, to_json
from spade.types_design import Brief, Design, Document, EnvProgram, StageResult, Verdict
from spade.types_learn import Credit, Sample, StepReport
from spade.types_play import Episode, EpisodeEnd, Fault, Group, Instance, Outcome, Regret, Scored, Turn
from spade.types_results import Comparison, Item, ItemResult, RunRecord, SuiteResult
from spade.types_text import (
    GAME_TYPES,
    GameType,
    Message,
    Role,
    StopReason,
    ToolCall,
    Trajectory,
    content_id,
)

__all__ = [
    "GAME_TYPES",
    "Brief",
    "Comparison",
    "Credit",
    "Design",
    "Document",
    "EnvProgram",
    "Episode",
    "EpisodeEnd",
    "Fault",
    "GameType",
    "Group",
    "Instance",
    "Item",
    "ItemResult",
    "Message",
    "Outcome",
    "Regret",
    "Role",
    "RunRecord",
    "Sample",
    "Scored",
    "StageResult",
    "StepReport",
    "StopReason",
    "SuiteResult",
    "ToolCall",
    "Trajectory",
    "Turn",
    "Verdict",
    "content_id",
    "from_json",
    "to_json",
]
