"""One node's part of an evaluation on several: an engine, a sandbox, a user. See `spade_evals.shared`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spade import registry
from spade.config import PlayConfig, SandboxConfig, ServingConfig
from spade.errors import InputError, SpadeError
from spade.serving.chat import ChatPolicy, ModelRef
from spade.serving.shards import Failed, ShardEngine
from spade.types import Item, ItemResult
from spade_evals.answers import Answer, AnswerLog, Key
from spade_evals.asking import Asker
from spade_evals.dialogue import DialogueTask
from spade_evals.dialogue_run import DialogueAsker
from spade_evals.presets import Ask
from spade_evals.question import Question, Task
from spade_evals.suite import Setting
from spade_evals.users import OpenUser, open_user


@dataclass(frozen=True, slots=True)
class Bench:
    """What a shard needs besides the model."""

    ref: str
    sandbox: SandboxConfig
    suites: Mapping[str, str]
    """Name a suite has in its results -> name it is registered under, or `FILE.py:Suite`."""
    pool: Path | None = None
    user: str = ""
    """Reference of the policy that plays the user, if one does."""
    folder: str = ""
    """Working directory of the command: relative paths are meant from there."""


@dataclass(frozen=True, slots=True)
class TaskBlock:
    """Some samples of one task."""

    suite: str
    task: str
    ask: Ask
    user_ask: Ask | None
    root: Path
    allow_changed: bool
    sha256: str
    """Of the data that the command has read."""
    seed: int
    units: tuple[Key, ...]
    have: frozenset[Key]
    """Those of `units` that are answered; an engine in lockstep gets them again for the sake of its batch."""


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a `TaskBlock`."""

    answers: tuple[Answer, ...]
    lost: int
    problem: str
    failed: Failed | None = None
    """What ended the block early."""


class Gathered(AnswerLog):
    """The answers of one block, in memory."""

    def __init__(self, have: Iterable[Key]) -> None:
        self.answers = dict.fromkeys(have)  # type: ignore[assignment]  # only looked up, never read
        self.new: list[Answer] = []

    def add(self, answer: Answer) -> None:
        """Keep one answer."""
        if answer.key not in self.answers:
            self.answers[answer.key] = answer
            self.new.append(answer)


class EvalShard(ShardEngine):
    """An engine with a sandbox of its own, as an actor on some node."""

    def __init__(self, path: str, cfg: ServingConfig, bench: Bench) -> None:
        from spade.serving.render import Renderer

        with contextlib.suppress(OSError):
            os.chdir(bench.folder)
        super().__init__(path, cfg)
        own = ModelRef("local", bench.ref, Path(path))
        self._hold(ChatPolicy(Renderer.from_folder(Path(path)), self.policy, own), cfg, bench)

    def _hold(self, chat: ChatPolicy, cfg: ServingConfig, bench: Bench) -> None:
        self.chat, self.bench = chat, bench
        self.cfg = cfg.model_copy(update={"shards": 0})
        self.box: Any = None
        self.user: OpenUser | None = None
        self._suites: dict[str, Any] = {}
        self._tasks: dict[tuple[str, str, str], tuple[Task, dict[str, Question]]] = {}

    async def facts(self) -> dict[str, Any] | Failed:
        """See `ShardEngine.facts`; starts the sandbox and the user."""
        from spade.envs.nodes import start_sandbox

        try:
            self.box = await start_sandbox(self.bench.sandbox)
            if self.bench.user:
                self.user = await open_user(self.bench.user, self.cfg, (self.bench.ref, self.chat))
        except SpadeError as error:
            return Failed.of(error)
        known = await super().facts()
        assert isinstance(known, dict)
        return {**known, "user": {} if self.user is None else self.user.key}

    async def play(
        self, suite: str, items: Sequence[Item], limits: PlayConfig, seed: int
    ) -> list[ItemResult] | Failed:
        """Results of items of a played suite, in order."""
        try:
            made = self._suite(suite)
            rows: list[ItemResult] = await made.run(items, Setting(self.chat, self.box, limits, seed))
        except SpadeError as error:
            return Failed.of(error)
        return rows

    async def ask(self, block: TaskBlock) -> Found:
        """Graded answers to samples of a task."""
        log = Gathered(block.have)
        lost, problem, failed = 0, "", None
        try:
            task, questions = self._task(block)
            setting = Setting(self.chat, self.box, PlayConfig(), block.seed)
            if self.user is not None:
                setting = replace(setting, user=self.user.chat, user_key=self.user.key)
            kind: Any = DialogueAsker if isinstance(task, DialogueTask) else Asker
            asker = kind(task, block.ask, setting, log)
            try:
                await asker.ask_units([(questions[name], sample) for name, sample in block.units])
            finally:
                lost, problem = asker.lost, asker.problem
        except SpadeError as error:
            failed = Failed.of(error)
        return Found(tuple(log.new), lost, problem, failed)

    async def stop(self) -> None:
        """End the sandbox and the user."""
        if self.user is not None:
            await self.user.close()
        if self.box is not None:
            await self.box.close()

    def _suite(self, name: str) -> Any:
        if name not in self._suites:
            made = registry.resolve("suite", self.bench.suites[name])()
            made = made if self.bench.pool is None else made.with_pool(self.bench.pool)
            self._suites[name] = made.with_user(self.user) if getattr(made, "needs_user", False) else made
        return self._suites[name]

    def _task(self, block: TaskBlock) -> tuple[Task, dict[str, Question]]:
        """The task as it is asked, and its questions by id. Raises InputError where there is other data."""
        key = block.suite, block.task, repr((block.ask, block.user_ask))
        if key not in self._tasks:
            task = next(task for task in self._suite(block.suite).tasks if task.name == block.task)
            loaded = task.load(block.root, block.allow_changed)
            if loaded.sha256 != block.sha256:
                raise InputError(
                    f"{block.root} on {os.uname().nodename} holds other data of {block.task} than the "
                    "machine of the command; copy the data from there"
                )
            task = task.configured(block.ask)
            if isinstance(task, DialogueTask) and block.user_ask is not None:
                task.user_ask = block.user_ask
            self._tasks[key] = task, {question.id: question for question in loaded.questions}
        return self._tasks[key]
