"""Arithmetic tasks on data files made in the test, and one call that asks a scripted policy."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spade.serving.chat import ChatPolicy
from spade.serving.scripted import ScriptedPolicy
from spade_evals.data import DataFile, Row, Source
from spade_evals.question import Grade, Question, QuestionSuite, Task
from spade_evals.question_run import Options, SuiteReport, ask_suite
from spade_evals.runner import Subject
from spade_evals.suite import Setting


def write_sums(root: Path, name: str = "sums", count: int = 12, shift: int = 0) -> str:
    """A JSON lines file of sums below `root`; returns its SHA-256."""
    rows = [{"q": f"{i} + {i + shift} = ?", "a": 2 * i + shift, "id": f"{name}/{i}"} for i in range(count)]
    path = root / name / "test.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Sums(Task):
    """Box with a whole number. `hook` runs before each grading and may raise."""

    def __init__(
        self,
        name: str = "sums",
        sha256: str = "",
        *,
        size: int = 0,
        grader: str = "sums-1",
        hook: Callable[[str, Question], None] | None = None,
        defects: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        self.name, self.grader, self.hook = name, grader, hook
        self.defects = defects or {}
        files = (DataFile(f"{name}/test.jsonl", sha256),)
        self.data = Source(files, "made in the test", "1", "MIT", size)
        for key, value in more.items():
            setattr(self, key, value)

    def read(self, rows: list[Row]) -> list[Question]:
        return [Question(self.name, row["q"], row["a"], row["id"]) for row in rows]

    async def grade(self, answer: str, question: Question, setting: Setting) -> Grade:
        if self.hook is not None:
            self.hook(answer, question)
        found = re.findall(r"\\boxed\{(.*?)\}", answer)
        if not found or not found[-1]:
            return Grade.none()
        return Grade.of(found[-1] == str(question.reference), found[-1])

    def solution(self, question: Question) -> str | None:
        return f"\\boxed{{{question.reference}}}"


class FreePolicy(ScriptedPolicy):
    """The scripted policy as a free-running engine."""

    lockstep = False


def chat_of(policy: ScriptedPolicy) -> ChatPolicy:
    return ChatPolicy(policy.renderer, policy)


def scripted(kind: str = "oracle", rows: int = 5, **more: Any) -> ChatPolicy:
    return chat_of(ScriptedPolicy(kind, max_rows=rows, **more))


async def ask(
    chat: ChatPolicy, tasks: list[Task], root: Path, out: Path, checkpoint: str = "abc", **options: Any
) -> SuiteReport:
    """Ask with the preset `smoke` unless `options` say otherwise."""
    suite = QuestionSuite("quiz", tasks, preset="smoke")
    seed = options.pop("seed", 0)
    return await ask_suite(
        chat, suite, None, out, Subject("ckpt", checkpoint), seed=seed,
        options=Options(data_root=root, **options), quiet=True,
    )  # fmt: skip


def lines(out: Path, task: str = "sums") -> list[dict[str, Any]]:
    path = out / "quiz" / f"{task}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
