"""HumanEval and MBPP, plain and with EvalPlus' tests: functions judged by asserts in the sandbox."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from spade_evals.data import DataFile, Row, Source
from spade_evals.grade.code import judge_script
from spade_evals.grade.programs import called, completed, program_in
from spade_evals.question import Grade, Question, Task
from spade_evals.suite import Setting

HUMANEVAL = Source(
    files=(
        DataFile(
            "humaneval/HumanEval.jsonl",
            sha256="1d49078ba3e2b196b9344535bef34a43021f038fad9561d6ee7c53450609a6a2",
            url="https://raw.githubusercontent.com/openai/human-eval/"
            "6d43fb980f9fee3c892a914eda09951f772ad10d/data/HumanEval.jsonl.gz",
        ),
    ),
    source="openai/human-eval",
    revision="6d43fb980f9fee3c892a914eda09951f772ad10d",
    licence="MIT",
    size=164,
)
HUMANEVAL_DEFECTS = {
    "HumanEval/47": "the prompt's second example says 15.0, the tests and the reference 8.0",
    "HumanEval/116": "the prompt's first two examples do not sort by the number of ones, as the tests do",
}
"""Prompts with an example that the reference contradicts."""

MBPP_SANITIZED = Source(
    files=(
        DataFile(
            "mbpp/sanitized-mbpp.json",
            sha256="7fec016546acaee11dbe14f9f0bb670e59f41919f7b522a59fba34871da78551",
            url="https://raw.githubusercontent.com/patdfb/TPC-EES/"
            "30c8c572bfcd0fc5fa537210710d7fde134e4868/mbpp/sanitized-mbpp.json",
        ),
    ),
    source="google-research/google-research mbpp, sanitized; a mirror's copy with upstream's content",
    revision="30c8c572bfcd0fc5fa537210710d7fde134e4868",
    licence="CC-BY-4.0",
    size=427,
)
MBPP_FULL = Source(
    files=(
        DataFile(
            "mbpp/mbpp.jsonl",
            sha256="ccf64ceae9c5403bf50a044cb6d505bfd2a2963ee58338ba268fd65beab92a9f",
            url="https://raw.githubusercontent.com/google-research/google-research/"
            "2251e8c67a7fe7d6348714967ee101080b28e956/mbpp/mbpp.jsonl",
        ),
    ),
    source="google-research/google-research mbpp",
    revision="2251e8c67a7fe7d6348714967ee101080b28e956",
    licence="CC-BY-4.0",
    size=974,
)
_EXPORT = "write it with datasets: load_dataset('evalplus/{0}')['test'].to_json('{1}')"


def _plus(hub: str, path: str, usual: int) -> Source:
    """EvalPlus keeps no fixed file, so none is pinned: the file's hash becomes part of the protocol."""
    how = _EXPORT.format(hub, path)
    return Source((DataFile(path),), f"evalplus/{hub}", "", "Apache-2.0", access=how, usual=usual)


NUMPY_STAND_IN = """
class np:
    def allclose(a, b, rtol=1e-05, atol=1e-08):
        if hasattr(b, "__len__") and not isinstance(b, str):
            pairs = list(zip(a, b))
            return len(a) == len(b) and all(np.allclose(x, y, rtol, atol) for x, y in pairs)
        return a == b or abs(a - b) <= atol + rtol * abs(b)
    float32 = float64 = float
"""
"""EvalPlus' checks take `allclose` and a few types from numpy, which the sandbox does not load by default."""

_NUMPY = re.compile(r"^import numpy as np\s*$", re.MULTILINE)


class HumanEval(Task):
    """HumanEval: the prompt is a function's head; answers may give the whole function or its body."""

    name = "humaneval"
    style = "code_function"
    template = "{question}\n\nComplete the Python code. Give the whole solution in one ```python block."
    max_tokens = 2048
    grader = "sandbox-asserts/1"
    data = HUMANEVAL
    defects: Mapping[str, str] = HUMANEVAL_DEFECTS

    def read(self, rows: list[Row]) -> list[Question]:
        """One question a row."""
        return [self._question(row) for row in rows]

    def _question(self, row: Row) -> Question:
        return Question(
            task=self.name,
            prompt=f"```python\n{row['prompt'].rstrip()}\n```",
            reference=row["canonical_solution"],
            name=row["task_id"],
            meta={"prompt": row["prompt"], "entry": row["entry_point"], "test": _plain_check(row["test"])},
        )

    async def grade(self, answer: str, question: Question, setting: Setting) -> Grade:
        """All asserts of the item's `check` must hold."""
        entry = question.meta["entry"]
        program = completed(answer, question.meta["prompt"], entry)
        if program is None:
            return Grade.none("no Python code that completes the function")
        check = f"{question.meta['test']}\ncheck({entry})"
        return await judge_script(setting.sandbox, program, check, entry)

    def solution(self, question: Question) -> str:
        """The whole function, fenced."""
        return f"```python\n{question.meta['prompt']}{question.reference}\n```"


class HumanEvalPlus(HumanEval):
    """HumanEval with EvalPlus' tests."""

    name = "humaneval_plus"
    defects: Mapping[str, str] = {}
    data = _plus("humanevalplus", "humaneval_plus/test.jsonl", 164)


class MBPP(Task):
    """MBPP: a sentence and the tests, which are part of the prompt, since only they name the function."""

    style = "code_write"
    template = "{question}\n\nGive the whole Python code in one ```python block."
    max_tokens = 2048
    grader = "sandbox-asserts/1"

    def __init__(self, name: str, data: Source) -> None:
        self.name, self.data = name, data

    def read(self, rows: list[Row]) -> list[Question]:
        """One question a row, of the sanitized, the full, or EvalPlus' form."""
        return [self._question(row) for row in rows]

    def _question(self, row: Row) -> Question:
        tests: list[str] = row["test_list"]
        entry = called(row["code"], tests)
        if entry is None:
            raise ValueError(f"task {row['task_id']}: the first test calls no function of the reference")
        setup = [row.get("test_setup_code") or "", *(row.get("test_imports") or [])]
        check = _plain_check(row["test"]) if row.get("test") else "\n".join([*setup, *tests])
        shown = "\n".join(tests)
        return Question(
            task=self.name,
            prompt=f"{row.get('prompt') or row['text']}\n\nYour code should pass these tests:\n\n"
            f"```python\n{shown}\n```",
            reference=row["code"].replace("\r\n", "\n"),
            name=f"mbpp/{row['task_id']}",
            meta={"entry": entry, "check": check},
        )

    async def grade(self, answer: str, question: Question, setting: Setting) -> Grade:
        """All asserts of the item must hold."""
        program = program_in(answer)
        if program is None:
            return Grade.none("no Python code")
        meta: dict[str, Any] = question.meta
        return await judge_script(setting.sandbox, program, meta["check"], meta["entry"])

    def solution(self, question: Question) -> str:
        """The reference code, fenced."""
        return f"```python\n{question.reference}\n```"


def mbpp() -> MBPP:
    """The 427 sanitized problems."""
    return MBPP("mbpp", MBPP_SANITIZED)


def mbpp_full() -> MBPP:
    """All 974 problems."""
    return MBPP("mbpp_full", MBPP_FULL)


def mbpp_plus() -> MBPP:
    """EvalPlus' selection of the sanitized problems with more tests."""
    return MBPP("mbpp_plus", _plus("mbppplus", "mbpp_plus/test.jsonl", 378))


def _plain_check(test: str) -> str:
    """A check program without numpy."""
    return _NUMPY.sub(NUMPY_STAND_IN, test)
