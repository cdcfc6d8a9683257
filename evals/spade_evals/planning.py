"""What one task is about to be asked: its questions, how, and the fingerprints of both."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spade.errors import ConfigError
from spade.files import plain
from spade.types import Item, content_id
from spade_evals.answers import Answer
from spade_evals.asking import unanswered
from spade_evals.presets import Ask
from spade_evals.question import Question, Questions, Task
from spade_evals.scores import task_score
from spade_evals.suite import take
from spade_evals.task_report import TaskReport

NAMED = re.compile(r"(?<![A-Za-z])\{([a-z_]+)\}")
"""A placeholder, and not the argument of a LaTeX command."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user may say about a suite of tasks."""

    preset: str | None = None
    """Shipped name or YAML file; unset = the suite's own."""
    samples: int | None = None
    """Samples per question instead of the preset's."""
    limit: int | None = None
    """Questions of each task."""
    data_root: Path | None = None
    allow_missing: bool = False
    """A task without data does not make the run fail, and the score is the mean over the others."""
    allow_changed: bool = False
    """Take data files that are not the pinned ones."""
    regrade: bool = False
    """Grade stored answers again instead of asking."""
    user: str = ""
    """Reference of the policy that plays the user; empty = the preset's, or none."""


@dataclass(slots=True)
class Plan:
    """One task, ready to be asked."""

    task: Task
    loaded: Questions
    questions: list[Question]
    ask: Ask
    protocol: dict[str, Any]
    asked: str = ""
    """Hash of everything an answer depends on; see `answers`."""
    seconds: float = 0.0
    lost: str = ""
    answers: list[Answer] = field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        """16 hex digits over the protocol."""
        return digest(self.protocol)

    def report(self) -> TaskReport:
        """The task as it stands."""
        missing = unanswered(self.questions, self.ask.n, {a.key: a for a in self.answers})
        score = task_score(self.answers, self.ask.n, missing, self.seconds)
        state = "partial" if missing else "done"
        return TaskReport(self.task.name, state, self.lost, score=score, changed=self.loaded.changed)


def planned(
    task: Task,
    loaded: Questions,
    ask: Ask,
    *,
    limit: int | None,
    seed: int,
    who: Sequence[str],
    more: Mapping[str, Any] | None = None,
) -> Plan:
    """The plan for a loaded task. `who` names what answers: the hashes of setup and checkpoint; `more` is the
    task's own part of the protocol.

    Raises ConfigError when the prompt does not fit the questions.
    """
    questions = chosen(loaded.questions, limit)
    _placeholders_known(ask, questions)
    protocol = {
        "task": task.name,
        "data": loaded.sha256,
        "items": content_id("\n".join(q.id for q in questions)),
        "n_items": len(questions),
        "prompt": ask.prompt_hash,
        "sampling": plain(ask.sampling),
        "seed": seed,
        "grader": task.grader,
        **({"more": dict(more)} if more else {}),
    }
    asked = {key: value for key, value in protocol.items() if key != "grader"}
    return Plan(task, loaded, questions, ask, protocol, digest([asked, *who]))


def chosen(questions: Sequence[Question], limit: int | None) -> list[Question]:
    """At most `limit` questions, spread over their clusters or, without any, over their parts."""
    items = [Item(q.id, q.part, q.cluster or q.part or q.id) for q in questions]
    kept = {item.id for item in take(items, limit)}
    return [question for question in questions if question.id in kept]


def _placeholders_known(ask: Ask, questions: Sequence[Question]) -> None:
    """Raises ConfigError when the prompt names a field that a question lacks: it would be sent as is."""
    for question in questions:
        unknown = set(NAMED.findall(ask.template)) - {"question", *question.fields}
        if unknown and isinstance(question.prompt, str):
            raise ConfigError(
                f"the prompt of style '{ask.style}' names {{{min(unknown)}}}, which {question.task} "
                f"does not have; it has {', '.join(['question', *question.fields])}"
            )


def digest(value: Any) -> str:
    """16 hex digits over a JSON value."""
    return content_id(json.dumps(plain(value), sort_keys=True))[:16]
