r"""AIME, MATH-500 and GSM8K: the answer is the content of the last `\boxed{}`."""

from __future__ import annotations

import asyncio

from spade_evals.data import DataFile, Row, Source
from spade_evals.grade.math import decide, grader_version, read_answer, same_expression
from spade_evals.question import Grade, Question, Task
from spade_evals.suite import Setting

_RAW = "https://raw.githubusercontent.com"
_QWEN = "a45202bd16f1ec06f433442dc1152d0074773465"
_HARNESS = "a0448031ca940fa85ebc55a461a047874ea5ac5f"
_GSM8K = "3101c7d5072418e28b9008a6636bde82a006892c"
_AIME_LICENCE = "problems (c) MAA, for evaluation only"

AIME24 = Source(
    (
        DataFile(
            "aime24/test.jsonl",
            sha256="af2b8bd2aa911b6333ad0df32f3ca05c7ae8ed10f1731f4372c8ae26990bf7ac",
            url=f"{_RAW}/QwenLM/Qwen2.5-Math/{_QWEN}/evaluation/data/aime24/test.jsonl",
        ),
    ),
    source="QwenLM/Qwen2.5-Math evaluation/data/aime24",
    revision=_QWEN,
    licence=_AIME_LICENCE,
    size=30,
)
AIME25 = Source(
    (
        DataFile(
            "aime25/test.jsonl",
            sha256="5ee6e9fb9b8c0408c8e3591709b6927063abf73ed238c029167a7eff7376cca0",
            url=f"{_RAW}/Zhuofeng-Li/math-evaluation-harness/{_HARNESS}/data/aime25/test.jsonl",
        ),
    ),
    source="Zhuofeng-Li/math-evaluation-harness data/aime25",
    revision=_HARNESS,
    licence=_AIME_LICENCE,
    size=30,
)
# No copy could be hashed when this was written: the hash of the file becomes part of the protocol.
AIME26 = Source(
    (DataFile("aime26/test.jsonl", hub="aime2026.jsonl"),),
    source="math-ai/aime26",
    revision="79037aebdb6580008fb960d17cb21fd3099083e3",
    licence=_AIME_LICENCE,
    size=30,
    hub="math-ai/aime26",
)
MATH500 = Source(
    (
        DataFile(
            "math500/test.jsonl",
            sha256="35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132",
            hub="test.jsonl",
        ),
    ),
    source="openai/prm800k math_splits/test.jsonl, by its copy HuggingFaceH4/MATH-500",
    revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
    licence="MIT",
    size=500,
    hub="HuggingFaceH4/MATH-500",
)
GSM8K = Source(
    (
        DataFile(
            "gsm8k/test.jsonl",
            sha256="3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
            url=f"{_RAW}/openai/grade-school-math/{_GSM8K}/grade_school_math/data/test.jsonl",
        ),
    ),
    source="openai/grade-school-math",
    revision=_GSM8K,
    licence="MIT",
    size=1319,
)


class MathTask(Task):
    """A problem with one answer in mathematical notation; `Question.reference` is that answer as text."""

    style = "boxed"
    template = "{question}\n\nPlease reason step by step, and put your final answer within \\boxed{}."
    phrase = False
    """Whether the last number after an answer phrase counts where there is no box."""

    def __init__(self) -> None:
        self.grader = grader_version()

    async def grade(self, answer: str, question: Question, setting: Setting) -> Grade:
        """Compare with the reference; the algebra, where it is needed, runs in a process of its own."""
        given = read_answer(answer, self.phrase)
        if given is None:
            return Grade.none("no boxed answer")
        reference = str(question.reference)
        same = decide(reference, given)
        if same is None:
            same = await asyncio.to_thread(same_expression, reference, given)
        return Grade.of(same, given)

    def solution(self, question: Question) -> str:
        """The reference in a box."""
        return f"\\boxed{{{question.reference}}}"


class Aime(MathTask):
    """AIME I and II of one year: 30 problems, answers 0 to 999, reported as the mean of many samples."""

    n = 32
    max_tokens = 32_768

    def __init__(self, year: int, data: Source) -> None:
        super().__init__()
        self.name, self.data = f"aime{year % 100}", data

    def read(self, rows: list[Row]) -> list[Question]:
        """One question a row; a reference such as `025` becomes `25`."""
        return [self._question(number, row) for number, row in enumerate(rows, start=1)]

    def _question(self, number: int, row: Row) -> Question:
        value = int(row["answer"])
        if not 0 <= value <= 999:
            raise ValueError(f"answer {value} of problem {number} is not between 0 and 999")
        return Question(self.name, str(row["problem"]).strip(), str(value), name=f"{self.name}/{number}")


class Math500(MathTask):
    """The 500 problems of the MATH test set that PRM800K holds out."""

    name = "math500"
    max_tokens = 16_384
    data = MATH500

    def read(self, rows: list[Row]) -> list[Question]:
        """One question a row, named by upstream's `unique_id`."""
        return [
            Question(self.name, row["problem"].strip(), row["answer"], name=row["unique_id"]) for row in rows
        ]


class Gsm8k(MathTask):
    """Grade-school word problems. The reference is what follows `####`."""

    name = "gsm8k"
    max_tokens = 4_096
    data = GSM8K
    phrase = True

    def read(self, rows: list[Row]) -> list[Question]:
        """One question a row."""
        return [
            Question(
                self.name, row["question"].strip(), row["answer"].split("####")[1].strip(), name=f"gsm8k/{n}"
            )
            for n, row in enumerate(rows, start=1)
        ]


def aime24() -> Aime:
    """AIME 2024."""
    return Aime(2024, AIME24)


def aime25() -> Aime:
    """AIME 2025."""
    return Aime(2025, AIME25)


def aime26() -> Aime:
    """AIME 2026; its data comes from the hub."""
    return Aime(2026, AIME26)
