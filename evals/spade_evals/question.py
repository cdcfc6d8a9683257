"""Questions with reference answers: what a task is, how its answers are graded, and who is to blame.

    Task.load ─► [Question] ─ask─► answer (thoughts off, stops applied) ─judge─► Grade   a score
                                                                          └────► Fault   no score

A grade is about the answer. A grader that times out or raises on an answer, while it accepts the reference,
makes that sample wrong, with a verdict of its own; one that fails on the reference itself is a fault of the
grader, and one killed from outside a fault of the machine. Neither fault is a score.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from spade.errors import ConfigError, FaultCode, FaultKind, InputError, ProgramFault
from spade.play.actions import OPEN_THOUGHT, strip_thoughts
from spade.registry import suggestion
from spade.types import Fault, Message, content_id
from spade_evals.data import DataAbsent as DataAbsent
from spade_evals.data import Row, Source, load_rows
from spade_evals.presets import Ask
from spade_evals.suite import Setting


class GradeVerdict(StrEnum):
    """What the grader says of one answer. All but `CORRECT` score 0, unless a task gives partial values."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    """Nothing could be read from the answer."""
    TRUNCATED = "truncated"
    """The same, and the answer was cut by its token limit."""
    GRADER_TIMEOUT = "grader_timeout"
    """The grader took too long on this answer; it accepts the reference."""
    UNGRADABLE = "ungradable"
    """The grader raised on this answer; it accepts the reference."""
    REFUSED = "refused"
    """The answer holds a call that may not be run; nothing of that reply was run."""


class GraderTimeout(Exception):
    """Raised by `Task.grade`: this answer took too long."""


class GraderLost(Exception):
    """Raised by `Task.grade`: the grader was killed from outside. The sample is tried again."""


class UserFailed(Exception):
    """Raised by `Task.grade`: the simulated user could not go on. The sample has no score."""


@dataclass(frozen=True, slots=True)
class Grade:
    """Verdict on one answer. `value` is in [0, 1]; `extracted` is what was read from the answer."""

    verdict: GradeVerdict
    value: float = 0.0
    extracted: str = ""
    detail: str = ""
    parts: dict[str, float] = field(default_factory=dict)
    """Further numbers by name, such as `process`; reported beside the value, never part of it."""

    @staticmethod
    def of(correct: bool, extracted: str = "", detail: str = "") -> Grade:
        """Right or wrong."""
        verdict = GradeVerdict.CORRECT if correct else GradeVerdict.WRONG
        return Grade(verdict, float(correct), extracted, detail)

    @staticmethod
    def none(detail: str = "") -> Grade:
        """Nothing to grade in the answer."""
        return Grade(GradeVerdict.NO_ANSWER, detail=detail)


@dataclass(frozen=True, slots=True)
class Question:
    """One item. Text in `prompt` goes into the preset's template; messages are sent as they are."""

    task: str
    prompt: str | tuple[Message, ...]
    reference: Any
    """Plain JSON value that the grader compares with."""
    name: str = ""
    """The benchmark's own id, such as `HumanEval/3`."""
    part: str = ""
    """Column of the tables, `top` or `top/leaf`; empty = the task's name."""
    cluster: str = ""
    """Unit of the standard error; empty = the question itself."""
    fields: dict[str, str] = field(default_factory=dict)
    """Texts for further placeholders of the template."""
    meta: dict[str, Any] = field(default_factory=dict)
    """What else the grader needs, plain JSON."""
    copy: int = 1
    """2, 3, ... for further questions with the same content."""
    id: str = field(init=False)
    """Task and 16 hex digits over the content; independent of place, file format and hash seed."""

    def __post_init__(self) -> None:
        # Computed once: tests of programs in `meta` can be megabytes.
        prompt = self.prompt if isinstance(self.prompt, str) else [[m.role, m.content] for m in self.prompt]
        content = [self.task, prompt, self.reference, self.fields, self.meta]
        digest = content_id(json.dumps(content, sort_keys=True, ensure_ascii=False))[:16]
        copy = f"~{self.copy}" if self.copy > 1 else ""
        object.__setattr__(self, "id", f"{self.task}/{digest}{copy}")


@dataclass(frozen=True, slots=True)
class Questions:
    """A loaded task: questions with unique ids, the hash of the data, files other than the pinned ones."""

    questions: list[Question]
    sha256: str
    changed: tuple[str, ...] = ()


class Task:
    """One benchmark. Subclasses set the attributes and write `read`, `grade` and `solution`."""

    name: str
    """File name of the samples and key in presets: lower case letters, digits, `_`."""
    style: str = "boxed"
    """Which prompt of the preset: boxed, choice, tagged, code_function, ..., or another."""
    template: str = "{question}"
    """The prompt where the preset has none of this style."""
    n: int = 1
    """Samples per question unless the preset says otherwise."""
    max_tokens: int = 2048
    grader: str = "1"
    """Name and version of the grader; samples of another one are graded again."""
    data: Source
    defects: Mapping[str, str] = {}
    """Name or id of a question -> what is known to be wrong with it."""
    markup: bool = False
    """Whether `solution` is a reply as it stands, with the markup that the prompt asks for."""
    variants: tuple[str, ...] = ()
    """Ways to grade that a preset's `variant` may name; the first is the default."""

    def configured(self, ask: Ask) -> Task:
        """The task as the preset asks for it. Raises ConfigError for a variant or style it does not have."""
        if ask.variant and ask.variant not in self.variants:
            raise ConfigError(
                f"{self.name} has no variant '{ask.variant}'{suggestion(ask.variant, self.variants)}"
            )
        return self

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """What answers depend on besides data, prompt and sampling; plain JSON."""
        return {}

    def lacks(self, setting: Setting) -> tuple[str, str] | None:
        """What the task cannot run for want of besides data: why, and what to add to the command."""
        return None

    def visible(self, text: str, stop: Sequence[str]) -> str:
        """The part of a stored reply that is graded."""
        return visible_answer(text, stop)

    def read(self, rows: list[Row]) -> list[Question]:
        """Questions in playing order out of the rows of all data files. Must be deterministic."""
        raise NotImplementedError

    async def grade(self, answer: str, question: Question, setting: Setting) -> Grade:
        """Grade the visible part of an answer. May raise anything; see `judge`."""
        raise NotImplementedError

    def solution(self, question: Question) -> str | None:
        """An answer that must be graded correct; None where there is no reference."""
        raise NotImplementedError

    def load(self, root: Path | None = None, allow_changed: bool = False) -> Questions:
        """Read the data and make the questions.

        Raises DataAbsent, or InputError for changed or damaged data.
        """
        loaded = load_rows(self.data, self.name, root, allow_changed)
        try:
            questions = numbered(self.read(loaded.rows))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            files = ", ".join(file.path for file in self.data.files)
            raise InputError(f"{files} does not have the form of {self.name} ({error!r})") from error
        if self.data.size and len(questions) != self.data.size and not allow_changed:
            raise InputError(
                f"{self.name} should have {self.data.size} questions, but its data makes {len(questions)}; "
                "evaluate on it with --allow-changed-data"
            )
        return Questions(questions, loaded.sha256, loaded.changed)

    def is_defective(self, question: Question) -> bool:
        """Whether the question is on the list of known defects."""
        return question.id in self.defects or (bool(question.name) and question.name in self.defects)


def numbered(questions: Sequence[Question]) -> list[Question]:
    """The questions with `copy` set where the same content stands again, so that ids are unique."""
    seen: Counter[str] = Counter()
    out = []
    for question in questions:
        seen[question.id] += 1
        number = seen[question.id]
        out.append(question if number == 1 else replace(question, copy=number))
    return out


class QuestionSuite:
    """A list of tasks under one name. `preset` is the one used unless the user names another."""

    def __init__(self, name: str, tasks: Sequence[Task], *, preset: str = "paper", version: int = 1) -> None:
        self.name, self.tasks, self.preset, self.version = name, list(tasks), preset, version
        doubled = [task for task, count in Counter(t.name for t in self.tasks).items() if count > 1]
        if doubled:
            raise InputError(f"suite '{name}' has two tasks called '{doubled[0]}'")


# --- from a completion to a grade ----------------------------------------------------------------------


def visible_answer(text: str, stop: Sequence[str] = (), in_thought: bool = False) -> str:
    """What is graded: the text without thoughts, ended before the first stop text.

    `in_thought` says that the prompt has already opened a thought. A reply cut inside it has no visible part.
    """
    answer = strip_thoughts(OPEN_THOUGHT + text if in_thought else text)
    ends = [at for mark in stop if (at := answer.find(mark)) >= 0]
    return answer[: min(ends)] if ends else answer


async def judge(task: Task, answer: str, cut: bool, question: Question, setting: Setting) -> Grade | Fault:
    """Grade one answer; `cut` says that a token limit ended it. See the module text for who is to blame."""
    try:
        grade = await task.grade(answer, question, setting)
    except (
        Exception
    ) as error:  # a grader runs foreign code on hostile text: whatever it raises is judged here
        return await _blame(error, task, question, setting)
    if cut and grade.verdict is GradeVerdict.NO_ANSWER:
        return replace(grade, verdict=GradeVerdict.TRUNCATED)
    return grade


async def _blame(error: Exception, task: Task, question: Question, setting: Setting) -> Grade | Fault:
    if _lost(error):
        return Fault(FaultKind.INFRASTRUCTURE, "grade", f"grader lost: {error}"[:300])
    if isinstance(error, UserFailed):
        return Fault(FaultKind.USER, "converse", str(error)[:300])
    reference = await grade_reference(task, question, setting)
    if isinstance(reference, Fault):
        return reference
    slow = isinstance(error, GraderTimeout | TimeoutError)
    verdict = GradeVerdict.GRADER_TIMEOUT if slow else GradeVerdict.UNGRADABLE
    return Grade(verdict, detail=f"{type(error).__name__}: {error}"[:300])


def _lost(error: Exception) -> bool:
    return isinstance(error, GraderLost) or (isinstance(error, ProgramFault) and error.code is FaultCode.LOST)


async def grade_reference(task: Task, question: Question, setting: Setting) -> Grade | Fault:
    """The grade of the reference answer; a Fault when it is not correct.

    Where a task has no reference, nothing speaks for the grader: that is a fault too.
    """
    solution = task.solution(question)
    if solution is None:
        return Fault(FaultKind.GRADER, "grade", "the grader failed, and there is no reference to try it on")
    try:
        grade = await task.grade(solution, question, setting)
    except Exception as error:  # as in `judge`
        kind = FaultKind.INFRASTRUCTURE if _lost(error) else FaultKind.GRADER
        return Fault(kind, "grade", f"on the reference: {type(error).__name__}: {error}"[:300])
    if grade.verdict is GradeVerdict.CORRECT:
        return grade
    return Fault(FaultKind.GRADER, "grade", f"the reference is graded {grade.verdict.value}")
