"""Answers on disk: one JSON line per sample, written when it is graded, never written twice.

A line is keyed by item, sample and `key` = `<asked>-<grader>`: `asked` hashes everything the answer depends
on, `grader` names what graded it. Lines of another `asked` are moved aside, never mixed in; lines of another
grader only need grading. A fault of the machine leaves no line, so the sample is asked again by the next run.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from spade.errors import InputError
from spade.files import atomic_write, cut_torn_line, json_lines, plain, read_jsonl
from spade.types import Outcome, content_id, from_json

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
        self.path, self.asked, self.key = path, asked, key_of(asked, grader)
        self.answers: dict[Key, Answer] = {}
        self.stale: set[Key] = set()
        """Answers that another grader graded."""
        self._fd = -1

    def __enter__(self) -> AnswerLog:
        """Lock the file and read what is there. Raises InputError when another process writes to it."""
        self._open()
        try:
            self._read()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def add(self, answer: Answer) -> None:
        """Write one answer; a sample that is there already is left as it is. One write, so a kill leaves the
        line whole, torn at the end of the file, or absent."""
        if answer.key in self.answers:
            return
        self._write(self._line(answer))
        self.answers[answer.key] = answer

    def replace(self, answers: Iterable[Answer]) -> None:
        """Rewrite the file with these answers, all of the present grader."""
        self.answers = {answer.key: answer for answer in answers}
        self.stale.clear()
        atomic_write(self.path, "".join(self._line(a) for a in self.answers.values()))
        self._close()
        self._open()

    def _line(self, answer: Answer) -> str:
        return json_lines([{"key": self.key, **plain(answer)}])

    def _write(self, line: str) -> None:
        data = line.encode("utf-8", "surrogatepass")
        size = os.fstat(self._fd).st_size
        try:
            written = os.write(self._fd, data)
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            os.ftruncate(self._fd, size)
            raise InputError(
                f"cannot write {self.path}: {error.strerror}; what is finished is kept"
            ) from error

    def _read(self) -> None:
        cut_torn_line(self.path)
        rows = read_jsonl(self.path)
        other = next((str(r.get("key")) for r in rows if not self._mine(str(r.get("key")))), None)
        if other is not None:
            self.path.rename(self.path.with_name(f"{self.path.stem}.{other[:12]}.old.jsonl"))
            self._close()
            self._open()
            return
        for row in rows:
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

    def _mine(self, key: str) -> bool:
        return key.rpartition("-")[0] == self.asked

    def _open(self) -> None:
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}; use --out PATH") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._close()
            raise InputError(
                f"another spade eval writes {self.path}; wait for it or use --out PATH"
            ) from error
        except OSError:
            pass  # a file system without locks: then nobody watches over two processes

    def _close(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1
