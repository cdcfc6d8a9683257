"""LiveCodeBench code generation: contest problems on standard input, or a method of `class Solution`.

The six files of release v6 hold 4.5 GB, nearly all of it tests. So they are read line by line; a question
keeps where its line lies, and the tests are decoded when an answer to it is judged.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from spade.errors import InputError
from spade.files import file_sha256, path_inside
from spade_evals.data import DataFile, Row, Source, absent, data_root, not_pinned
from spade_evals.grade.code import contest_tests, judge_function, judge_stdin
from spade_evals.grade.packed_tests import decode_tests
from spade_evals.grade.programs import program_in
from spade_evals.question import Grade, Question, Questions, Task
from spade_evals.suite import Setting

HUB: Final = "livecodebench/code_generation_lite"
REVISION: Final = "0fe84c3912ea0c4d4a78037083943e8f0c4dd505"
SHA256: Final = {
    "test.jsonl": "2bd02b38beb48e8c46b5b9987095d999ff38cd8efc255ea5d58974317c48f63f",
    "test2.jsonl": "095df7c5daf15f882c51a9deb84085cff1e073495a5dbcf95015a564d485f3a3",
    "test3.jsonl": "28ed26cc83363ce3f1fe2d5fad9f8393077beb1907b167a31bd3b32f80801b79",
    "test4.jsonl": "d711138ddaebfcf5f8ec6a4283ee677298c0f5c5d374a235af92aaf0584510da",
    "test5.jsonl": "7f77571c2a6df0c2a72a3277650309f67e01e0008e18117e624633df53f81214",
    "test6.jsonl": "bb4c364f71921c4495a6ad15abe1a927350b720009f4933e2e71f8af0f6fd1f5",
}
"""Of the hub's files at `REVISION`. Releases are cumulative: v6 is all six."""

STDIN = "Write a program that reads from standard input and prints the answer to standard output."
FUNCTION = "Complete this code, keeping the names and the signature:\n\n```python\n{starter}\n```"


def _source(files: list[str], size: int) -> Source:
    return Source(
        files=tuple(DataFile(f"livecodebench/{name}", SHA256[name], hub=name) for name in files),
        source=HUB,
        revision=REVISION,
        licence="CC (runner: MIT); the statements belong to the contest sites",
        size=size,
        hub=HUB,
    )


class LiveCodeBench(Task):
    """One release, or a folder of files in its format."""

    style = "code_problem"
    template = "{question}\n\n{how}\n\nGive the whole Python code in one ```python block."
    max_tokens = 16384
    grader = "sandbox-livecodebench/1"

    def __init__(self, name: str, data: Source) -> None:
        self.name, self.data = name, data
        self._lines: dict[str, tuple[Path, int]] = {}
        """Hash of the tests -> file and offset of the problem's line."""

    def load(self, root: Path | None = None, allow_changed: bool = False) -> Questions:
        """Read the files in order without keeping their tests.

        Raises DataAbsent, DataChanged, or InputError naming the file and line.
        """
        folder = self.data.root or root or data_root()
        digest = hashlib.sha256()
        changed: list[str] = []
        questions: list[Question] = []
        for file in self.data.files:
            path = path_inside(folder, file.path)
            if not path.is_file():
                raise absent(self.data, self.name, path, root)
            found = file_sha256(path)
            if file.sha256 and found != file.sha256:
                if not allow_changed:
                    raise not_pinned(self.name, path, found, file.sha256)
                changed.append(file.path)
            digest.update(found.encode())
            questions += self._questions(path)
        if self.data.size and len(questions) != self.data.size and not allow_changed:
            raise InputError(
                f"{self.name} should have {self.data.size} questions, but its data makes {len(questions)}; "
                "evaluate on it with --allow-changed-data"
            )
        return Questions(_unique(questions, self.name), digest.hexdigest(), tuple(changed))

    def _questions(self, path: Path) -> Iterator[Question]:
        for number, offset, row in _rows(path):
            try:
                yield self._question(row, path, offset)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise InputError(
                    f"{path} line {number} is no problem of LiveCodeBench ({error!r})"
                ) from error

    def _question(self, row: Row, path: Path, offset: int) -> Question:
        raw = f"{row['public_test_cases']}\0{row['private_test_cases']}"
        tests = hashlib.sha256(raw.encode()).hexdigest()
        self._lines[tests] = (path, offset)
        known = json.loads(row["metadata"]) if isinstance(row["metadata"], str) else row["metadata"]
        function = known.get("func_name") or known.get("fn_name") or ""
        starter = row.get("starter_code") or ""
        how = FUNCTION.format(starter=starter.rstrip()) if starter.strip() else STDIN
        return Question(
            task=self.name,
            prompt=str(row["question_content"]).strip(),
            reference="all tests",
            name=str(row["question_id"]),
            fields={"how": how, "starter": starter},
            meta={"tests": tests, "function": function, "difficulty": str(row.get("difficulty", ""))},
        )

    async def grade(self, answer: str, question: Question, setting: Setting) -> Grade:
        """Public and private tests must all pass, 6 s each."""
        program = program_in(answer)
        if program is None:
            return Grade.none("no Python code")
        function = question.meta["function"]
        found = await asyncio.to_thread(self.tests, question)  # up to tens of megabytes to unpack
        tests: Any = contest_tests(found, function)
        if function:
            return await judge_function(setting.sandbox, program, function, tests)
        return await judge_stdin(setting.sandbox, program, tests)

    def tests(self, question: Question) -> list[dict[str, Any]]:
        """The public tests, then the private ones. Raises InputError for tests that cannot be decoded."""
        path, offset = self._lines[question.meta["tests"]]
        with path.open("rb") as file:
            file.seek(offset)
            row = json.loads(file.readline())
        where = f"{path.name} {question.name}"
        return [
            test
            for key in ("public_test_cases", "private_test_cases")
            for test in decode_tests(row[key], where)
        ]

    def solution(self, question: Question) -> str | None:
        """The data has no solutions."""
        return None


def livecodebench() -> LiveCodeBench:
    """Release v6: 1,055 problems, May 2023 to April 2025."""
    return LiveCodeBench("livecodebench", _source(list(SHA256), 1055))


def livecodebench_v6_only() -> LiveCodeBench:
    """The 175 problems that release v6 added, January to April 2025."""
    return LiveCodeBench("livecodebench_v6_only", _source(["test6.jsonl"], 175))


def _rows(path: Path) -> Iterator[tuple[int, int, Row]]:
    """(line number, offset, row) of a JSON lines file, one line in memory at a time."""
    offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise InputError(f"{path} line {number} is not valid JSON ({error})") from error
                yield number, offset, row
            offset += len(line)


def _unique(questions: list[Question], name: str) -> list[Question]:
    ids = {question.id for question in questions}
    if len(ids) != len(questions):
        raise InputError(f"{len(questions) - len(ids)} problems of {name} are there twice; check its files")
    return questions
