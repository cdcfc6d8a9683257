"""The suite `code`, and its neighbours: each factory takes no argument and is a row of `spade.registry`."""

from __future__ import annotations

from spade_evals.question import QuestionSuite
from spade_evals.tasks.code import HumanEval, HumanEvalPlus, mbpp, mbpp_full, mbpp_plus
from spade_evals.tasks.livecodebench import livecodebench, livecodebench_v6_only


def make_suite() -> QuestionSuite:
    """LiveCodeBench release v6, HumanEval, MBPP sanitized."""
    return QuestionSuite("code", [livecodebench(), HumanEval(), mbpp()])


def make_extra() -> QuestionSuite:
    """The slice that LiveCodeBench v6 added, and all of MBPP."""
    return QuestionSuite("code-extra", [livecodebench_v6_only(), mbpp_full()])


def make_plus() -> QuestionSuite:
    """HumanEval and MBPP with EvalPlus' tests, from files that the user supplies."""
    return QuestionSuite("evalplus", [HumanEvalPlus(), mbpp_plus()])
