"""ACEBench's other fifteen categories: one answer with calls, or a sentence that says why there is none.

Two of them come in groups of successive requests of one conversation, whose history is given; a group is
solved when all its answers are. Variants as for the agent categories; see `matching`. Items whose reference
answer does not pass the variant's own rules count as known to be defective.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from itertools import groupby
from typing import Any, Final

from spade.types import Message
from spade_evals.data import Row, Source
from spade_evals.dialogue import DialogueTask, Speaker, Transcript
from spade_evals.grade.calls import Call
from spade_evals.grade.calls_reader import read_calls
from spade_evals.presets import Ask
from spade_evals.question import Grade, GradeVerdict, Question, Task
from spade_evals.suite import Setting
from spade_evals.suites.acebench.matching import called, fits
from spade_evals.suites.acebench.single_prompts import (
    INCORRECT,
    LIMITED,
    MISSING,
    NORMAL,
    SPECIAL,
    single_chat,
    texts_hash,
)
from spade_evals.suites.acebench.sources import paired, source
from spade_evals.suites.acebench.tasks import OFFICIAL, STRICT

GRADER: Final = "ace-single-1"
REFUSES_ITSELF: Final = "the reference answer does not pass these rules"


def verdict_of(answer: str, meta: Mapping[str, Any], strict: bool, squeezed: bool = False) -> Grade:
    """Whether an answer holds the annotated calls. `squeezed` removes every blank first, even inside strings:
    so the published reader does with groups."""
    text = "".join(answer.split()) if squeezed else first_block(answer)
    read = read_calls(text if text.startswith("[") else "", names_as_text=True)
    if read.refused is not None:
        return Grade(GradeVerdict.REFUSED, detail=str(read.refused))
    if not read.calls:
        return Grade.none("no list of calls")
    said = ", ".join(map(str, read.calls))[:500]
    wrong = [fits(read.calls, one, meta["functions"], strict) for one in meta["answers"]]
    return Grade.of("" in wrong, said, "" if "" in wrong else wrong[0])


def first_block(text: str) -> str:
    """The first text in brackets that match; brackets inside strings count too, as published."""
    depth, start = 0, 0
    for at, char in enumerate(text):
        if char == "[":
            start, depth = (at, 1) if depth == 0 else (start, depth + 1)
        elif char == "]" and depth > 0:
            depth -= 1
            if depth == 0:
                return text[start : at + 1]
    return ""


def as_calls(answer: Mapping[str, Mapping[str, Any]]) -> str:
    """A possible answer in the form that is asked for."""
    return f"[{', '.join(str(Call(called(name), (), dict(kwargs))) for name, kwargs in answer.items())}]"


def answers_in(row: Row) -> list[dict[str, Any]]:
    """The alternatives of a possible answer."""
    truth = row["ground_truth"]
    return truth if isinstance(truth, list) else [truth]


class SingleTask(Task):
    """One category. `data` replaces the pinned files (tests)."""

    style = "calls"
    template = "{question}"
    max_tokens = 2048
    variants = (OFFICIAL, STRICT)
    markup = True
    rules = NORMAL
    grader = f"{GRADER}+{OFFICIAL}"
    variant = OFFICIAL

    def __init__(self, category: str, data: Source | None = None, part: str = "") -> None:
        self.name, self.part = task_name(category), part
        self.data = data or source(category)
        self._refuse: dict[str, dict[str, str]] = {}

    def configured(self, ask: Ask) -> SingleTask:
        """See `Task.configured`."""
        super().configured(ask)
        task = copy(self)
        task.variant = ask.variant or OFFICIAL
        task.grader, task.defects = f"{GRADER}+{task.variant}", self._refuse.get(task.variant, {})
        return task

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """See `Task.protocol`."""
        return {"prompts": texts_hash()}

    def read(self, rows: list[Row]) -> list[Question]:
        """See `Task.read`."""
        questions = [self._question(item, answer) for item, answer in paired(rows)]
        self._refuse = {
            variant: {
                q.name: REFUSES_ITSELF for q in questions if not self._passes_itself(q, variant == STRICT)
            }
            for variant in self.variants
        }
        return questions

    def _question(self, item: Row, answer: Row) -> Question:
        chat = single_chat(
            self.rules, item["function"], item["question"], item.get("time", ""), item.get("profile")
        )
        meta = {"functions": item["function"], "answers": answers_in(answer)}
        return Question(self.name, chat, answer["ground_truth"], item["id"], part=self.part, meta=meta)

    def _passes_itself(self, question: Question, strict: bool) -> bool:
        return self._grade(self.solution(question), question, strict).verdict is GradeVerdict.CORRECT

    async def grade(self, answer: str, question: Question, setting: Setting) -> Grade:
        """See `Task.grade`; the value under the other variant is kept beside it."""
        strict = self.variant == STRICT
        other = self._grade(answer, question, not strict)
        grade = self._grade(answer, question, strict)
        return Grade(
            grade.verdict, grade.value, grade.extracted, grade.detail,
            {OFFICIAL if strict else STRICT: other.value},
        )  # fmt: skip

    def _grade(self, answer: str, question: Question, strict: bool) -> Grade:
        return verdict_of(answer, question.meta, strict)

    def solution(self, question: Question) -> str:
        """The first alternative, as calls."""
        return as_calls(question.meta["answers"][0])


class SpecialTask(SingleTask):
    """Requests that cannot be met: the answer has to hold the sentence and what it is about."""

    rules = SPECIAL

    def _grade(self, answer: str, question: Question, strict: bool) -> Grade:
        sentence, names = _wanted(self.name, question.reference)
        if not answer.strip():
            return Grade.none()
        missing = [text for text in (sentence, *names) if text not in answer]
        return Grade.of(not missing, answer.strip()[:300], f"without {missing[0]!r}" if missing else "")

    def solution(self, question: Question) -> str:
        """The sentence about the annotated names."""
        sentence, names = _wanted(self.name, question.reference)
        return f'["{sentence} {", ".join(names)}"]'


def _wanted(name: str, reference: Any) -> tuple[str, list[str]]:
    """The sentence, and the texts that have to stand beside it."""
    if name == task_name("special_irrelevant"):
        return LIMITED, []
    values = [str(value) for listed in reference.values() for value in listed]
    if name == task_name("special_incomplete"):
        return MISSING, [*reference, *values]
    return INCORRECT, values


class GroupTask(DialogueTask):
    """Successive requests with given histories; `process` is the share of answers that are right."""

    styles = ("calls",)
    style = "calls"
    template = "{question}"
    max_tokens = 2048
    variants = (OFFICIAL, STRICT)
    grader = GRADER

    def __init__(self, category: str, data: Source | None = None, part: str = "") -> None:
        self.name, self.part = task_name(category), part
        self.data = data or source(category)
        self._refuse: dict[str, dict[str, str]] = {}

    def configured(self, ask: Ask) -> GroupTask:
        """See `Task.configured`."""
        task = super().configured(ask)
        assert isinstance(task, GroupTask)
        task.defects = self._refuse.get(task.variant, {})
        return task

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """See `Task.protocol`."""
        return {**super().protocol(setting), "prompts": texts_hash()}

    def read(self, rows: list[Row]) -> list[Question]:
        """One question a group: ids end in the number of the group and that of the request."""
        groups = groupby(paired(rows), key=lambda pair: pair[0]["id"].rsplit("_", 1)[0])
        questions = [self._question(name, list(pairs)) for name, pairs in groups]
        self._refuse = {
            variant: {
                q.name: REFUSES_ITSELF
                for q in questions
                if not all(self._verdicts(q, self._replies(q), variant == STRICT))
            }
            for variant in self.variants
        }
        return questions

    def _question(self, name: str, pairs: Sequence[tuple[Row, Row]]) -> Question:
        requests = [
            {
                "chat": [
                    [message.role, message.content]
                    for message in single_chat(
                        NORMAL, item["function"], item["question"], item.get("time", ""), None
                    )
                ],
                "functions": item["function"],
                "answers": answers_in(answer),
            }
            for item, answer in pairs
        ]
        return Question(
            self.name,
            pairs[-1][0]["question"],
            [answer["ground_truth"] for _, answer in pairs],
            name,
            part=self.part,
            meta={"requests": requests},
        )

    def _replies(self, question: Question) -> list[str]:
        return [as_calls(request["answers"][0]) for request in question.meta["requests"]]

    def _verdicts(self, question: Question, replies: Sequence[str], strict: bool) -> list[bool]:
        requests = question.meta["requests"]
        return [
            verdict_of(reply, request, strict, squeezed=not strict).verdict is GradeVerdict.CORRECT
            for reply, request in zip(replies, requests, strict=True)
        ]

    async def converse(self, question: Question, speaker: Speaker, setting: Setting) -> Transcript:
        """Each request in a chat of its own."""
        said = []
        for request in question.meta["requests"]:
            reply = await speaker.say([Message(role, content) for role, content in request["chat"]])
            said.append({"role": "assistant", "content": reply.text})
        return Transcript(tuple(said), "done")

    async def script(self, question: Question, setting: Setting) -> list[str] | None:
        """The possible answers."""
        return self._replies(question)

    def solution(self, question: Question) -> str | None:
        """The same as a conversation."""
        said = [{"role": "assistant", "content": reply} for reply in self._replies(question)]
        return Transcript(tuple(said), "done").text()

    async def mark(self, transcript: Transcript, question: Question, setting: Setting) -> Grade:
        """See `DialogueTask.mark`."""
        strict = self.variant == STRICT
        replies = [str(message["content"]) for message in transcript.messages]
        grades = [
            verdict_of(reply, request, strict, squeezed=not strict)
            for reply, request in zip(replies, question.meta["requests"], strict=True)
        ]
        right = [grade.verdict is GradeVerdict.CORRECT for grade in grades]
        other = all(self._verdicts(question, replies, not strict))
        parts = {"process": sum(right) / len(right), OFFICIAL if strict else STRICT: float(other)}
        first = next((grade for grade in grades if grade.verdict is not GradeVerdict.CORRECT), grades[-1])
        said = " ".join(grade.extracted for grade in grades)[:500]
        return Grade(first.verdict, float(all(right)), said, first.detail, parts)


def task_name(category: str) -> str:
    """`ace_` and the category without its group."""
    return "ace_" + category.removeprefix("normal_").removeprefix("special_")
