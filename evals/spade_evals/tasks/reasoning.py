"""Reasoning-Gym, hard: 100 procedural tasks in four groups, on frozen items; and making such items.

    items.jsonl: {task, index, config, entry [, version, sha256]}   one item a line, equally many per task

The items are frozen because the library gives others in another version, and for some tasks in another
process. Solved means a raw score of 1 or more: most scorers give something for part of an answer, some even
for an empty one. The score of a group is the mean over its samples; each task is a column too.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from spade.errors import InputError
from spade.files import atomic_write, make_folder
from spade.report.progress import counter
from spade_evals.data import DataAbsent, DataFile, Row, Source
from spade_evals.grade.reasoning import Scorer, ScorerError, read_answer, shared_scorer
from spade_evals.question import Grade, GraderLost, GraderTimeout, GradeVerdict, Question, Questions, Task
from spade_evals.suite import Setting

ITEMS: Final = "reasoning_gym_hard/items.jsonl"
COMMAND: Final = "spade data generate reasoning-gym-hard"
ABSENT: Final = "absent"
PER_TASK: Final = 8
SEED: Final = 42

GROUPS: Final = ("math", "algorithmic", "cognition", "logic")

SOURCE: Final = Source(
    # No hash is pinned: everyone makes these items, and the hash of the file becomes part of the protocol.
    files=(DataFile(ITEMS),),
    source="reasoning-gym, hard configurations of arXiv 2505.24760",
    revision="made by the installed version; the file says which",
    licence="Apache-2.0",
    makes=COMMAND,
)

NO_REFERENCE: Final = ("graph_color", "propositional_logic", "rubiks_cube", "rush_hour")
"""Tasks whose items have a scorer but no reference answer."""

DEFECTS: Final = {
    "game_of_life_halting": "the scorer takes any answer that is not empty",
    "propositional_logic": "the scorer takes a copied premise as the conclusion",
    "puzzle24": "the scorer takes any four numbers of the range that make 24, not only the given ones",
    "rubiks_cube": "the scorer drops moves that name a layer by a number, such as 2R",
}
"""Tasks whose scorer takes what does not solve the item, or the other way round."""


@cache
def configurations() -> dict[str, dict[str, dict[str, Any]]]:
    """Group -> task -> configuration of the 100 tasks."""
    import yaml

    path = Path(__file__).with_name("reasoning_gym_hard.yaml")
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


class ReasoningGroup(Task):
    """One of the four groups. `data` and `scorer` replace the frozen items and the shared process (tests)."""

    style = "tagged"
    template = (
        "{question}\n\nThink step by step, then give only the final answer between <answer> and </answer>."
    )
    max_tokens = 8192

    def __init__(self, group: str, data: Source = SOURCE, scorer: Scorer | None = None) -> None:
        self.name, self.group = f"rg_{group}", group
        self._scorer = scorer
        self.tasks = configurations()[group]
        self.data = data if data.root else replace(data, usual=PER_TASK * len(self.tasks))
        self.defects: dict[str, str] = {}

    @property
    def grader(self) -> str:  # type: ignore[override]  # asking the library's version starts nothing
        """Names the installed library: its scorers change from version to version."""
        return f"reasoning-gym-{installed_version()}/1"

    @property
    def scorer(self) -> Scorer:
        """The process that scores."""
        return self._scorer or shared_scorer()

    def load(self, root: Path | None = None, allow_changed: bool = False) -> Questions:
        """As for every task; without the library, the command that installs it."""
        if installed_version() == ABSENT:
            raise DataAbsent("reasoning-gym is not installed", "pip install reasoning-gym")
        return super().load(root, allow_changed)

    def read(self, rows: list[Row]) -> list[Question]:
        """The items of this group. Every task of it must be there, with equally many items."""
        mine = [row for row in rows if row["task"] in self.tasks]
        counts = Counter(row["task"] for row in mine)
        missing = [task for task in self.tasks if not counts[task]]
        if missing and not self.data.root:
            raise InputError(
                f"{ITEMS} has no items of {', '.join(missing)}; make it again: {COMMAND} --out ROOT"
            )
        if len(set(counts.values())) > 1:
            raise InputError(f"{ITEMS} does not have equally many items for every task of {self.group}")
        for row in mine:
            if "sha256" in row and entry_hash(row["entry"]) != row["sha256"]:
                raise InputError(f"{ITEMS}: {row['task']} item {row['index']} was changed after it was made")
        self.defects = {_name(row): DEFECTS[row["task"]] for row in mine if row["task"] in DEFECTS}
        return [self._question(row) for row in mine]

    def _question(self, row: Row) -> Question:
        entry = row["entry"]
        return Question(
            task=self.name,
            prompt=entry["question"].strip(),
            reference=entry["answer"],
            name=_name(row),
            part=f"{self.name}/{row['task']}",
            meta={"task": row["task"], "config": row["config"], "entry": entry},
        )

    async def grade(self, answer: str, question: Question, setting: Setting) -> Grade:
        """Right if the task's own scorer gives 1 or more."""
        text = read_answer(answer)
        if text is None:
            return Grade.none("no <answer> and no box")
        try:
            score = await self._score(question, text)
        except (GraderTimeout, ScorerError) as error:
            if question.reference is not None:
                raise  # the caller tries the reference
            await self._score(question, "0")  # without one: the scorer must work on a harmless answer
            slow = isinstance(error, GraderTimeout)
            verdict = GradeVerdict.GRADER_TIMEOUT if slow else GradeVerdict.UNGRADABLE
            return Grade(verdict, extracted=text, detail=str(error))
        return Grade.of(score >= 1.0, text, f"raw score {score:.4g}")

    async def _score(self, question: Question, text: str) -> float:
        meta = question.meta
        work = self.scorer.score
        return await asyncio.to_thread(work, meta["task"], meta["config"], meta["entry"], text)

    def solution(self, question: Question) -> str | None:
        """The reference in tags; None for the tasks of `NO_REFERENCE`."""
        return None if question.reference is None else f"<answer>{question.reference}</answer>"


def installed_version() -> str:
    """Of reasoning-gym; `ABSENT` without it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("reasoning_gym")
    except PackageNotFoundError:
        return ABSENT


def entry_hash(entry: dict[str, Any]) -> str:
    """SHA-256 of an entry's canonical JSON."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()


def _name(row: Row) -> str:
    return f"{row['task']}/{row['index']}"


# --- making items --------------------------------------------------------------------------------------


def generate_items(
    out: Path,
    *,
    per_task: int = PER_TASK,
    seed: int = SEED,
    tasks: Sequence[str] = (),
) -> Path:
    """Make items of the hard split (all tasks, or `tasks`) and write them under the data root `out`.

    Beside them a file `SOURCE` says version, seed and hash. The same version and seed give the same items,
    except for `codeio`. Raises InputError for an unknown task, or where the library cannot make one.
    """
    wanted = {task: config for group in configurations().values() for task, config in group.items()}
    unknown = [task for task in tasks if task not in wanted]
    if unknown:
        raise InputError(f"the hard split of reasoning-gym has no task '{unknown[0]}'")
    chosen = [task for task in wanted if not tasks or task in tasks]
    scorer = Scorer()
    lines: list[str] = []
    task = "any task"
    try:
        version = scorer.version()
        with counter(len(chosen), "reasoning-gym-hard") as progress:
            for done, task in enumerate(chosen):
                progress.update(done, task)
                for index, entry in enumerate(scorer.make(task, wanted[task], seed, per_task)):
                    row = {"task": task, "index": index, "config": wanted[task], "entry": entry}
                    lines.append(json.dumps({**row, "version": version, "sha256": entry_hash(entry)}))
    except (ScorerError, GraderTimeout, GraderLost) as error:
        raise InputError(f"reasoning-gym could not make items of {task} ({error}); try again") from error
    finally:
        scorer.close()
    return _write(Path(out) / ITEMS, lines, version, seed, per_task)


def _write(path: Path, lines: Sequence[str], version: str, seed: int, per_task: int) -> Path:
    content = ("\n".join(lines) + "\n").encode()
    about = (
        f"made with reasoning-gym {version} (Apache-2.0), hard configurations of arXiv 2505.24760 "
        f"appendix A.3, seed {seed}, {per_task} items a task, Python {platform.python_version()}; "
        f"SHA-256 {hashlib.sha256(content).hexdigest()}\n"
    )
    make_folder(path.parent)
    atomic_write(path, content)
    atomic_write(path.with_name("SOURCE"), about.encode())
    return path
