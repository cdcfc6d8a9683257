"""SciBench and TheoremQA: numbers within a tolerance, lists of them, truth values, options."""

from __future__ import annotations

import asyncio
import re
from pathlib import PurePosixPath
from typing import Any

from spade_evals.data import FILE_KEY, DataFile, Row, Source
from spade_evals.grade import choice
from spade_evals.grade.latex import clean
from spade_evals.grade.math import all_close, close, grader_version, number_in, numbers_in, read_answer
from spade_evals.question import Grade, Question, Task
from spade_evals.suite import Setting

_RAW = "https://raw.githubusercontent.com"
_SCIBENCH = "e14e0ca3d3db0f02928a18d435b9c3d15656a7c5"
_THEOREMQA = "acfc9686aa9b49f3c8f189364a9a9ee9c53da039"

_BOOKS = {
    "atkins": "d2dd481ade7a3a2c6a108e2539bddaf2df83ecb5ef4021f04f520d55ec51f5ac",
    "calculus": "69779c85d33afe2bf17d6f2a0cb7ccbb172e609cc21c3e86b17e1c21eb9fb2c6",
    "chemmc": "134baf281dc7636fd01729b7f3b52465a44ea55fec5cb00e76a5fe809da520a0",
    "class": "113f73bf829e73ed4ab7ccb97a3a8cc50531075ebdb13e5421d62230a96e239a",
    "diff": "009547bcb646c7c88532908b9c3a689f02af66233869ea6e35c2d7c676478565",
    "fund": "d6b90173970bfa5ed04355c77731c5a28921a0224a0fb7240817f6cb18ea3790",
    "matter": "641291cb3d62b18bd73daa1f62988733d039f4df940f77f46052e92ac284ea94",
    "quan": "a3c4f483b5dd7ce162d3d95610bb56614b5003ecba80f450c79755811176e4f1",
    "stat": "a0f84cf8fbb94512174e4ecddb5a7bfa2b6ce7ddde0094c70d886a51a003dcfb",
    "thermo": "723e550d350dbb13644bf72eda5f19a5d8978aa5abd1c779399051618604494b",
}
SCIBENCH = Source(
    tuple(
        DataFile(
            f"scibench/{book}.json",
            sha256=digest,
            url=f"{_RAW}/mandyyyyii/scibench/{_SCIBENCH}/dataset/original/{book}.json",
        )
        for book, digest in _BOOKS.items()
    ),
    source="mandyyyyii/scibench dataset/original",
    revision=_SCIBENCH,
    licence="MIT",
    size=580,
)
THEOREMQA = Source(
    (
        DataFile(
            "theoremqa/test.json",
            sha256="4a3c8683534cd1866491d309d16e2e4d79e8110bd503c91b5c4fecaa0f3744c8",
            url=f"{_RAW}/TIGER-AI-Lab/TheoremQA/{_THEOREMQA}/theoremqa_test.json",
        ),
    ),
    source="TIGER-AI-Lab/TheoremQA, the 747 questions without a picture",
    revision=_THEOREMQA,
    licence="MIT",
    size=747,
)

SCIBENCH_TOLERANCE = 0.05
"""Relative, as in the benchmark's later evaluation; a reference of 0 wants 0."""

SCIBENCH_DEFECTS = {
    "atkins/p1.27(a)": "the number is ten times the book's answer, 1.7e-5, which is right",
    "stat/5.3-3": "the number, 1.44, is no probability; the book's answer 36/125 is right",
    "stat/Problem 1.1.9": "the number is 17/27; the book's formula, and the right answer, is 19/27",
    "class/Problem 9.36": "two values are right, 3 + 2 sqrt 2 and 3 - 2 sqrt 2; the number is the first",
}


class SciBench(Task):
    """College textbook problems with numeric answers.

    A power of ten in the unit is taken into the reference, and the question names the unit without it.
    """

    name = "scibench"
    style = "boxed"
    template = "{question}\n\nPlease reason step by step, and put your final answer within \\boxed{}."
    max_tokens = 4_096
    data = SCIBENCH
    defects = SCIBENCH_DEFECTS

    def __init__(self) -> None:
        self.grader = f"{grader_version()}+relative-{SCIBENCH_TOLERANCE}"

    def read(self, rows: list[Row]) -> list[Question]:
        """One question a row, named by book and problem."""
        return [self._question(row) for row in rows]

    def _question(self, row: Row) -> Question:
        unit, power = plain_unit(row["unit"])
        digits = row["answer_number"].strip().replace("−", "-").replace(",", "")
        ask = f"The unit of the answer is {unit}." if unit else "The answer is a number without a unit."
        return Question(
            self.name,
            f"{row['problem_text'].strip()}\n\n{ask}",
            float(f"{digits}e{power}"),
            name=f"{PurePosixPath(row[FILE_KEY]).stem}/{row['problemid'].strip()}",
            meta={"unit": unit},
        )

    async def grade(self, answer: str, question: Question, setting: Setting) -> Grade:
        """The number in the last box, a unit after it allowed, within the tolerance."""
        given = read_answer(answer)
        if given is None:
            return Grade.none("no boxed answer")
        value = await asyncio.to_thread(number_in, given)
        if value is None:
            return Grade.of(False, given, "not a number")
        return Grade.of(close(value, float(question.reference), SCIBENCH_TOLERANCE), given)

    def solution(self, question: Question) -> str:
        """The reference with its unit."""
        unit = f"\\text{{ {question.meta['unit'].strip('$')} }}" if question.meta["unit"].isalpha() else ""
        return f"\\boxed{{{question.reference!r}{unit}}}"


_TEN = re.compile(r"\\mathrm\{\s*10\^(\{-?\d+\}|-?\d)\s*\}|10\^\s*(\{-?\d+\}|-?\d)")


def plain_unit(text: str) -> tuple[str, int]:
    r"""A unit without its power of ten, and the power: `$10^{-19} \mathrm{~J}$` is (`$\mathrm{~J}$`, -19)."""
    text = " ".join(text.split())
    match = _TEN.search(text)
    power = int((match[1] or match[2]).strip("{}")) if match else 0
    inner = (text[: match.start()] + text[match.end() :] if match else text).strip()
    inner = re.sub(r"(?<!\\)\$\s*\$", "", inner).strip()
    if not inner.strip("$ "):
        return ("$" if inner == "$" else ""), power  # a lone $ is the currency
    if "\\" in inner and "$" not in inner:
        inner = f"${inner}$"
    return re.sub(r"^\$\s+|\s+\$$", "$", inner), power


THEOREMQA_TOLERANCE = 0.04
"""Relative, for decimal references; whole ones want the nearest whole number. Both as upstream's script."""

THEOREMQA_DEFECTS = {
    "xueguangma/physics_current_and_resistance.json": "the figure with the direction of the current is "
    "missing, and the reference 2.5 is in milliohm where ohm are asked"
}

_TRUTH = {"true": True, "yes": True, "false": False, "no": False}
_FORMS = (
    "The answer is a number such as 0.1, a list of numbers such as [2, 3, 4], True or False, "
    "or an option such as (a)."
)


class TheoremQa(Task):
    """University questions that apply a theorem. The 53 questions with a picture are left out."""

    name = "theoremqa"
    style = "boxed"
    template = "{question}\n\nPlease reason step by step, and put your final answer within \\boxed{}."
    max_tokens = 4_096
    data = THEOREMQA
    defects = THEOREMQA_DEFECTS

    def __init__(self) -> None:
        self.grader = f"{grader_version()}+{choice.GRADER}+relative-{THEOREMQA_TOLERANCE}"

    def read(self, rows: list[Row]) -> list[Question]:
        """One question a row without a picture; `meta["kind"]` is upstream's answer type."""
        return [
            Question(
                self.name,
                f"{row['Question'].strip()}\n\n{_FORMS}",
                row["Answer"],
                name=row["id"],
                meta={"kind": row["Answer_type"]},
            )
            for row in rows
            if not row["Picture"]
        ]

    async def grade(self, answer: str, question: Question, setting: Setting) -> Grade:
        """By the kind of the reference."""
        kind, reference = question.meta["kind"], question.reference
        if kind == "option":
            found = choice.pick(answer, options_in(str(question.prompt)))
            if not found.read:
                return Grade.none("no option")
            return Grade.of(
                found.letter == reference.strip("()").upper(), found.letter or found.read, found.why
            )
        given = read_answer(answer)
        if given is None:
            return Grade.none("no boxed answer")
        if kind == "bool":
            return Grade.of(_TRUTH.get(clean(given).lower()) is reference, given)
        return Grade.of(await asyncio.to_thread(same_numbers, reference, given), given)

    def solution(self, question: Question) -> str:
        """The reference as Python writes it: `[0, 5]`, `True`, `(a)`, `4e-05`."""
        return f"\\boxed{{{question.reference}}}"


def options_in(text: str) -> list[str]:
    """Empty texts, as many as there are options `(a)`, `(b)`, ... in a question."""
    used = {letter for letter in re.findall(r"\(([a-j])\)", text.removesuffix(_FORMS))}
    return [""] * next((at for at, letter in enumerate("abcdefghij") if letter not in used), 10)


def same_numbers(reference: Any, given: str) -> bool:
    """Whether the numbers of an answer are those of a TheoremQA reference; a list in any order."""
    values = numbers_in(given, separated=isinstance(reference, list))
    if values is None:
        return False
    if isinstance(reference, list):
        # Upstream's tolerance for each element by its own type.
        whole = all(isinstance(item, int) for item in reference)
        wanted = [float(item) for item in reference]
        return all_near(values, wanted) if whole else all_close(values, wanted, THEOREMQA_TOLERANCE)
    if len(values) != 1:
        return False
    shares = [values[0], values[0] / 100] if "%" in given else values
    if isinstance(reference, int):
        return any(abs(value - reference) < 0.5 for value in shares)
    return any(close(value, float(reference), THEOREMQA_TOLERANCE) for value in shares)


def all_near(values: list[float], references: list[float]) -> bool:
    """The same whole numbers after rounding, in any order."""
    pairs = zip(sorted(values), sorted(references), strict=False)
    return len(values) == len(references) and all(abs(value - wanted) < 0.5 for value, wanted in pairs)
