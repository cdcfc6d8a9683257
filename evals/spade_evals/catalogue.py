"""What suites and tasks there are, and whether their data is present; nothing is loaded."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spade import registry
from spade.errors import InputError, SpadeError
from spade_evals import data
from spade_evals.fetching import fetch as fetch_files
from spade_evals.harness.options import PREFIX
from spade_evals.question import QuestionSuite, Task
from spade_evals.suite import About


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """One task of a suite."""

    name: str
    size: int
    """Questions; 0 = unknown."""
    source: str
    revision: str
    licence: str
    present: bool
    access: str
    command: str
    """Gets or makes the data."""
    usual: bool = False
    """The size is the usual one; the data may make another number."""


@dataclass(frozen=True, slots=True)
class SuiteEntry:
    """One suite. `problem` says why it cannot be imported or used."""

    name: str
    where: str
    preset: str = ""
    tasks: tuple[TaskEntry, ...] = ()
    played: TaskEntry | None = None
    """In place of tasks where programs are played, which have no data files."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All suites; `str()` is the terminal text."""

    suites: tuple[SuiteEntry, ...]
    root: str

    def __str__(self) -> str:
        lines = []
        for suite in self.suites:
            rows = suite.tasks or (() if suite.played is None else (suite.played,))
            kind = f"preset {suite.preset}" if suite.tasks else suite.where
            if [row.name for row in rows] == [suite.name] and suite.played:
                kind = "played"
            lines.append(f"{suite.name}  {suite.problem or kind}")
            lines += task_lines(rows)
        return "\n".join([*lines, f"data root: {self.root}"])


def task_lines(tasks: Sequence[TaskEntry]) -> list[str]:
    """Name, size, whether the data is present, licence and source of each task."""
    width = max((len(task.name) for task in tasks), default=0)
    return [
        f"  {task.name:<{width}}  {_size(task):>6}  "
        f"{'present' if task.present else 'absent ':<7}  {task.licence}; {task.source}"
        for task in tasks
    ]


def _size(task: TaskEntry) -> str:
    return f"{'~' * task.usual}{task.size:,}" if task.size else "?"


def catalogue(root: Path | None = None) -> Catalogue:
    """Every registered suite with its tasks."""
    entries = tuple(_entry(name, root) for name in registry.names("suite"))
    return Catalogue((*entries, _harness()), str(data.data_root(root)))


def _harness() -> SuiteEntry:
    """The suites that lm-evaluation-harness brings, all in one row."""
    get, there = "pip install 'spade-rl[lm-eval]'", find_spec("lm_eval") is not None
    row = TaskEntry(
        "TASK", 0, "tasks of EleutherAI/lm-evaluation-harness, which fetches their data",
        "the installed version", "MIT; every task's data has its own", there, "", get,
    )  # fmt: skip
    problem = "" if there else f"needs the extra lm-eval: {get}"
    return SuiteEntry(
        f"{PREFIX}TASK[,TASK]", "any task of lm-evaluation-harness", played=row, problem=problem
    )


def all_tasks() -> dict[str, Task]:
    """Every task of every suite that can be imported, by name."""
    found: dict[str, Task] = {}
    for name in registry.names("suite"):
        try:
            suite = question_suite(name)
        except SpadeError:
            continue
        for task in suite.tasks if suite is not None else ():
            found.setdefault(task.name, task)
    return found


def fetch(name: str, root: Path | None = None, force: bool = False) -> list[Path]:
    """Bring the data of a task, or of all tasks of a suite, under the data root.

    Raises InputError; see `fetching.fetch`.
    """
    tasks = all_tasks()
    if name in tasks:
        return fetch_files(tasks[name].data, name, root, force)
    if name not in registry.names("suite"):
        known = [*tasks, *registry.names("suite")]
        raise InputError(f"unknown task '{name}'{registry.suggestion(name, known)}")
    suite = question_suite(name)
    if suite is None:
        row = _played(name)
        lack = f"; what it needs, comes by: {row.command}" if row is not None and not row.present else ""
        raise InputError(f"the suite '{name}' is played and has no data to get{lack}")
    sources = {task.data.files: task.data for task in suite.tasks}  # tasks may share their files
    return [path for source in sources.values() for path in fetch_files(source, name, root, force)]


def question_suite(name: str) -> QuestionSuite | None:
    """The suite behind a name if it is one of tasks.

    Told by class or return annotation where there is one, so that no suite of programs is built for nothing.
    """
    factory = registry.resolve("suite", name)
    made = factory if inspect.isclass(factory) else _returns(factory)
    if inspect.isclass(made) and not issubclass(made, QuestionSuite):
        return None
    suite = factory()
    return suite if isinstance(suite, QuestionSuite) else None


def _returns(factory: Any) -> Any:
    try:
        return typing.get_type_hints(factory).get("return")
    except (NameError, TypeError):
        return None


def _entry(name: str, root: Path | None) -> SuiteEntry:
    where = registry.target("suite", name)
    try:
        suite = question_suite(name)
    except SpadeError as error:
        return SuiteEntry(name, where, problem=f"cannot be used: {error}")
    if suite is None:
        return SuiteEntry(name, where, played=_played(name))
    return SuiteEntry(name, where, suite.preset, tuple(_task(task, root) for task in suite.tasks))


def _task(task: Task, root: Path | None) -> TaskEntry:
    source = task.data
    command = source.makes or f"spade data get {task.name}"
    return TaskEntry(
        task.name, source.size or source.usual, source.source, source.revision, source.licence,
        data.present(source, root), source.access, command, usual=not source.size,
    )  # fmt: skip


def _played(name: str) -> TaskEntry | None:
    """What a suite that is played says of itself; None where it says nothing."""
    factory = registry.resolve("suite", name)
    about = getattr(factory if inspect.isclass(factory) else _returns(factory), "about", None)
    if not isinstance(about, About):
        return None
    return TaskEntry(
        name, about.size, about.source, about.revision, about.licence, about.present(), "", about.command
    )
