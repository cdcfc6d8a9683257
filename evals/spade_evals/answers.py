"""Answers on disk: one JSON line per sample, written when it is graded, never written twice.

A line is keyed by item, sample and `key` = `<asked>-<grader>`: `asked` hashes everything the answer depends
on, `grader` names what graded it. Lines of another `asked` are moved aside, never mixed in; lines of another
grader only need grading. A fault of the machine leaves no line, so the sample is asked again by the next run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spade.errors import InputError
from spade.files import plain
from spade.types import Outcome, content_id, from_json
from spade_evals.lines import LineFile

Key = tuple[str, int]
"""Item id and sample."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One graded sample. The first eight fields are those of an `ItemResult`."""

    item_id: str
    part: str
    cluster: str
    sample: int
    outcome: Outcome
    end: str
    """`stop`, `length` (answer limit), or `context` (no room in the context window)."""
    tokens: int
    text: str
    """The whole reply, thoughts included; a thought that the prompt opened is opened here."""
    verdict: str
    """A `GradeVerdict`; "" for a fault."""
    extracted: str
    detail: str
    expected: str
    prompt: str
    name: str
    """The benchmark's own id of the question."""
    defective: bool
    """On the task's list of known defects."""
    prompt_tokens: int
    seconds: float
    """From asking to the end of the reply; in a batch, of the whole batch."""
    parts: dict[str, float] = field(default_factory=dict)
    """Further numbers that the grader gave, by name."""

    @property
    def key(self) -> Key:
        """What tells samples apart."""
        return self.item_id, self.sample

    @property
    def cut(self) -> bool:
        """Whether a limit ended the reply."""
        return self.end != "stop"


def key_of(asked: str, grader: str) -> str:
    """The key of lines."""
    return f"{asked}-{content_id(grader)[:8]}"


class AnswerLog:
    """The answers of one task. One process at a time; use it in a `with` block."""

    def __init__(self, path: Path, asked: str, grader: str) -> None:
        self.path, self.key = path, key_of(asked, grader)
        self.answers: dict[Key, Answer] = {}
        self.stale: set[Key] = set()
        """Answers that another grader graded."""
        self._file = LineFile(path, lambda key: key.rpartition("-")[0] == asked)

    def __enter__(self) -> AnswerLog:
        """Lock the file and read what is there. Raises InputError when another process writes to it."""
        rows = self._file.open()
        try:
            for row in rows:
                self._take(row)
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, answer: Answer) -> None:
        """Write one answer; a sample that is there already is left as it is."""
        if answer.key in self.answers:
            return
        self._file.add(self._row(answer))
        self.answers[answer.key] = answer

    def replace(self, answers: Iterable[Answer]) -> None:
        """Rewrite the file with these answers, all of the present grader."""
        self.answers = {answer.key: answer for answer in answers}
        self.stale.clear()
        self._file.replace(self._row(a) for a in self.answers.values())

    def _row(self, answer: Answer) -> dict[str, Any]:
        return {"key": self.key, **plain(answer)}

    def _take(self, row: dict[str, Any]) -> None:
        try:
            answer = from_json(Answer, row)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{self.path} is not a file of answers of this version ({error!r}); "
                "move it away or use another --out"
            ) from error
        self.answers[answer.key] = answer
        if row["key"] != self.key:
            self.stale.add(answer.key)
