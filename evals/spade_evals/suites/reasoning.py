"""The suite `reasoning`: the four groups of Reasoning-Gym's hard split."""

from __future__ import annotations

from spade_evals.question import QuestionSuite
from spade_evals.tasks.reasoning import GROUPS, ReasoningGroup


def make_suite() -> QuestionSuite:
    """Math, algorithmic, cognition and logic."""
    return QuestionSuite("reasoning", [ReasoningGroup(group) for group in GROUPS])
