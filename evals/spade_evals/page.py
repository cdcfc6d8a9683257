"""The samples of a suite as one static HTML page. What a model wrote is hostile text: everything is escaped,
and the page loads nothing and sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spade.files import atomic_write
from spade_evals.answers import Answer
from spade_evals.dialogue import readable
from spade_evals.task_report import SuiteReport

LIMIT = 500
"""Samples of a task on the page; a browser gets slow beyond a few thousand."""

EXPECTED_CHARS = 4_000
"""References such as the tests of a program can be megabytes."""


def write_page(path: Path, report: SuiteReport, answers: Mapping[str, Sequence[Answer]]) -> None:
    """Write the page; `answers` are those of each task."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    rows = [
        _row(task, answer)
        for task, own in answers.items()
        for answer in sorted(own, key=lambda a: a.key)[:LIMIT]
    ]
    text = environment.get_template("page.html.j2").render(
        report=report,
        text=str(report),
        tasks=list(answers),
        verdicts=sorted({row["verdict"] for row in rows}),
        rows=rows,
        limit=LIMIT,
        left_out=sum(max(0, len(own) - LIMIT) for own in answers.values()),
    )
    atomic_write(path, text)


def _row(task: str, answer: Answer) -> dict[str, Any]:
    marks = [answer.name or answer.item_id, f"sample {answer.sample}", f"{answer.tokens} tokens"]
    marks += ["cut"] if answer.cut else []
    marks += ["defective item"] if answer.defective else []
    verdict = answer.verdict or "fault"
    return {
        "task": task,
        "verdict": verdict,
        "kind": verdict if verdict in ("correct", "fault") else "wrong",
        "title": task,
        "mark": " · ".join(marks),
        "answer": answer,
        "text": readable(answer.text),
        "expected": answer.expected[:EXPECTED_CHARS],
    }
