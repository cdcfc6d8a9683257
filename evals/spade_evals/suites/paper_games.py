"""The suite `paper-games`: the eight columns of the paper's games table and their plain mean."""

from __future__ import annotations

from spade_evals.question import QuestionSuite
from spade_evals.tasks.livecodebench import livecodebench
from spade_evals.tasks.math import aime25, aime26
from spade_evals.tasks.reasoning import GROUPS, ReasoningGroup
from spade_evals.tasks.science import Gpqa


def make_suite() -> QuestionSuite:
    """AIME-25, AIME-26, GPQA-D, LCB-v6, RG-Math, RG-Algo, RG-Cog, RG-Logic; each counts one eighth."""
    groups = [ReasoningGroup(group) for group in GROUPS]
    return QuestionSuite(
        "paper-games", [aime25(), aime26(), Gpqa(), livecodebench(), *groups], preset="paper"
    )
