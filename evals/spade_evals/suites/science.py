"""The suite `science`: its factory takes no argument and is a row of `spade.registry`."""

from __future__ import annotations

from spade_evals.question import QuestionSuite
from spade_evals.tasks.science import Gpqa, MmluPro, MmluStem
from spade_evals.tasks.scinumbers import SciBench, TheoremQa


def make_suite() -> QuestionSuite:
    """GPQA-Diamond, MMLU-Pro, MMLU-STEM, SciBench, TheoremQA without pictures."""
    return QuestionSuite("science", [Gpqa(), MmluPro(), MmluStem(), SciBench(), TheoremQa()])
