"""The suite `math`: its factory takes no argument and is a row of `spade.registry`."""

from __future__ import annotations

from spade_evals.question import QuestionSuite
from spade_evals.tasks.math import Gsm8k, Math500, aime24, aime25, aime26


def make_suite() -> QuestionSuite:
    """AIME 2024 to 2026, MATH-500, GSM8K."""
    return QuestionSuite("math", [aime24(), aime25(), aime26(), Math500(), Gsm8k()])
