"""GPQA-Diamond, MMLU-Pro and MMLU-STEM: multiple choice, one letter per answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from spade_evals.data import DataFile, Row, Source
from spade_evals.grade.choice import GRADER, LETTERS, listed, pick, shuffled
from spade_evals.question import Grade, Question, Task
from spade_evals.suite import Setting

_RAW = "https://raw.githubusercontent.com"
_QWEN = "a45202bd16f1ec06f433442dc1152d0074773465"
_HARNESS = "a0448031ca940fa85ebc55a461a047874ea5ac5f"

# Neither hub file could be hashed when this was written: the hash read becomes part of the protocol.
GPQA = Source(
    (DataFile("gpqa/gpqa_diamond.csv", hub="gpqa_diamond.csv"),),
    source="Idavidrein/gpqa",
    revision="633f5ee89ab8ad4522a9f850766b73f62147ffdd",
    licence="CC-BY-4.0",
    size=198,
    hub="Idavidrein/gpqa",
    access="GPQA is gated, and its authors ask not to publish the questions: with a free account, accept "
    "the terms at https://huggingface.co/datasets/Idavidrein/gpqa, then run `hf auth login` or set HF_TOKEN.",
)
MMLU_PRO = Source(
    (DataFile("mmlu_pro/test.parquet", hub="data/test-00000-of-00001.parquet"),),
    source="TIGER-Lab/MMLU-Pro",
    revision="b189ec765aa7ed75c8acfea42df31fdae71f97be",
    licence="MIT",
    size=12_032,
    hub="TIGER-Lab/MMLU-Pro",
)
MMLU_PRO_SAMPLE = Source(
    (
        DataFile(
            "mmlu_pro_sample/test.jsonl",
            sha256="58dd558e1ea4128060b7bc905ff965a52375edbe15c72633e8bcb6e431fae307",
            url=f"{_RAW}/Zhuofeng-Li/math-evaluation-harness/{_HARNESS}/data/mmlu_pro/test.jsonl",
        ),
    ),
    source="TIGER-Lab/MMLU-Pro, 300 items drawn by Zhuofeng-Li/math-evaluation-harness; not for reporting",
    revision=_HARNESS,
    licence="MIT",
    size=300,
)
MMLU_STEM = Source(
    (
        DataFile(
            "mmlu_stem/test.jsonl",
            sha256="fd7c16f96067d285638abb5aaef9cd8a063b11454e14cb64df93141a58691478",
            url=f"{_RAW}/QwenLM/Qwen2.5-Math/{_QWEN}/evaluation/data/mmlu_stem/test.jsonl",
        ),
    ),
    source="hendrycks/test, the 18 STEM subjects, as in QwenLM/Qwen2.5-Math",
    revision=_QWEN,
    licence="MIT",
    size=3_018,
)

_TWICE = "the same question and options as {}"
_CUT = "the question is cut: only the reaction equation is left of it"
MMLU_STEM_DEFECTS = {
    "mmlu_stem/2554": "options A and B read the same, and A is the reference",
    "mmlu_stem/1454": _CUT,
    "mmlu_stem/1527": _CUT,
    "mmlu_stem/1617": _CUT,
} | {
    f"mmlu_stem/{second}": _TWICE.format(f"mmlu_stem/{first}")
    for first, second in (
        (2127, 2139),
        (2126, 2174),
        (2152, 2181),
        (2125, 2182),
        (2150, 2189),
        (2195, 2199),
        (2153, 2200),
        (2207, 2212),
        (2166, 2213),
        (2165, 2216),
        (2124, 2220),
        (2545, 2730),
    )
}


class ChoiceTask(Task):
    """A question with options; `Question.reference` is the letter, `meta["options"]` the texts as shown."""

    style = "choice"
    template = (
        "{question}\n\n{options}\n\n"
        "Please reason step by step, and put the letter of your choice within \\boxed{}."
    )
    grader = GRADER
    max_tokens = 16_384

    async def grade(self, answer: str, question: Question, setting: Setting) -> Grade:
        """One letter, in any of the forms of `spade_evals.grade.choice`."""
        found = pick(answer, question.meta["options"])
        if found.letter is None:
            return Grade.of(False, found.read, found.why) if found.read else Grade.none("no letter")
        return Grade.of(found.letter == question.reference, found.letter)

    def solution(self, question: Question) -> str:
        r"""The letter in a box, in the form that needs care: `\boxed{\text{C}}`."""
        return f"\\boxed{{\\text{{{question.reference}}}}}"

    def asked(
        self, text: str, options: Sequence[str], right: int, name: str, order: Sequence[int] | None = None
    ) -> Question:
        """The question with `options` shown in `order` (place p shows option `order[p]`), which is kept."""
        order = list(range(len(options))) if order is None else list(order)
        shown = [options[place].strip() for place in order]
        meta = {"options": shown, "order": order}
        letter = LETTERS[order.index(right)]
        return Question(self.name, text.strip(), letter, name, fields={"options": listed(shown)}, meta=meta)


class Gpqa(ChoiceTask):
    """GPQA-Diamond. Upstream puts the right answer first, so each question has an order of its own."""

    name = "gpqa_diamond"
    data = GPQA

    def read(self, rows: list[Row]) -> list[Question]:
        """One question a row."""
        return [self._question(number, row) for number, row in enumerate(rows, start=1)]

    def _question(self, number: int, row: Row) -> Question:
        options = [row["Correct Answer"], *(row[f"Incorrect Answer {i}"] for i in (1, 2, 3))]
        name = row.get("Record ID") or f"gpqa_diamond/{number}"
        order = shuffled(len(options), row["Question"].strip())
        return self.asked(row["Question"], options, 0, name, order)


class MmluPro(ChoiceTask):
    """MMLU-Pro: up to ten options in upstream's order."""

    name = "mmlu_pro"
    data = MMLU_PRO

    def read(self, rows: list[Row]) -> list[Question]:
        """One question a row."""
        return [
            self.asked(
                row["question"],
                list(row["options"]),
                LETTERS.index(row["answer"]),
                f"mmlu_pro/{row['question_id']}",
            )
            for row in rows
        ]


class MmluProSample(ChoiceTask):
    """300 items of MMLU-Pro, options inside the question text; for a quick look, not for reporting."""

    name = "mmlu_pro_sample"
    data = MMLU_PRO_SAMPLE

    def read(self, rows: list[Row]) -> list[Question]:
        """One question a row, options cut out of the text."""
        return [self._question(number, row) for number, row in enumerate(rows, start=1)]

    def _question(self, number: int, row: Row) -> Question:
        text, options = row["question"].split("\n Options are:\n")
        lines = re.split(r"\n(?=[A-J]\. )", options)
        if [line[0] for line in lines] != list(LETTERS[: len(lines)]):
            raise ValueError(f"the options of row {number} are not lettered in order")
        right = LETTERS.index(row["answer"])
        return self.asked(text, [line[3:] for line in lines], right, f"{self.name}/{number}")


class MmluStem(ChoiceTask):
    """The test questions of MMLU's 18 STEM subjects, standard errors by question."""

    name = "mmlu_stem"
    max_tokens = 4_096
    data = MMLU_STEM
    defects = MMLU_STEM_DEFECTS

    def read(self, rows: list[Row]) -> list[Question]:
        """One question a row, named by its place in the file."""
        return [
            self.asked(row["question"], row["choices"], row["answer"], f"mmlu_stem/{number}")
            for number, row in enumerate(rows, start=1)
        ]
