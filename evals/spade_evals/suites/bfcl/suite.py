"""The suites `bfcl` (multi-turn; the score is the mean of the four categories) and `bfcl-single`.

There is no number over both: upstream's overall counts a category that was not run as 0.
"""

from __future__ import annotations

from spade_evals.question import QuestionSuite
from spade_evals.suites.bfcl.multi_turn import MultiTurn
from spade_evals.suites.bfcl.package import MULTI_TURN, SINGLE_TURN
from spade_evals.suites.bfcl.single_turn import SingleTurn


def make_suite() -> QuestionSuite:
    """The four multi-turn categories."""
    return QuestionSuite("bfcl", [MultiTurn(name) for name in MULTI_TURN])


def make_single() -> QuestionSuite:
    """The single-turn categories, each a task of its own."""
    return QuestionSuite("bfcl-single", [SingleTurn(name) for name in SINGLE_TURN])
