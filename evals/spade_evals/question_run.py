"""Run a suite of tasks on a checkpoint: plan, ask what is missing, summarise, write `run.json`.

    OUT/<suite>/run.json        protocol, setup, scores; written before the first task and after every one
    OUT/<suite>/<task>.jsonl    one line per sample
    OUT/<suite>/index.html      the samples, to look at

A task is *done*, *partial* (samples are missing; the same command asks for them) or *not run* (its data is
absent). A task that was not run is never averaged: the suite's score is then undefined, unless the user
allows it and gets the mean over the others.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade.config import PlayConfig
from spade.errors import InputError
from spade.files import make_folder, plain, read_json, write_json
from spade.report.progress import Counter, counter
from spade.types import ItemResult, Scored
from spade_evals.answers import Answer, AnswerLog, key_of
from spade_evals.asking import Asker, OnAnswer, grade_again, together
from spade_evals.data import DataAbsent
from spade_evals.dialogue import DialogueTask
from spade_evals.dialogue_run import DialogueAsker
from spade_evals.planning import Options as Options
from spade_evals.planning import Plan, digest, planned
from spade_evals.presets import Ask, load_preset
from spade_evals.provenance import setup_of
from spade_evals.question import Questions, QuestionSuite, Task
from spade_evals.shared import SharedAsker, SharedPolicy
from spade_evals.stored import FORMAT
from spade_evals.subject import Subject, task_name
from spade_evals.suite import Setting, summarise
from spade_evals.task_report import SuiteReport, TaskReport
from spade_evals.users import OpenUser

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.serving.launch import ChatPolicy

RUN = "run.json"
PAGE = "index.html"


async def ask_suite(
    chat: ChatPolicy,
    suite: QuestionSuite,
    sandbox: Sandbox | None,
    out: Path,
    subject: Subject,
    *,
    seed: int = 0,
    options: Options | None = None,
    quiet: bool = False,
    user: OpenUser | None = None,
) -> SuiteReport:
    """Ask all tasks of a suite with an open policy; what is stored in `out` is not asked again. `user` plays
    the user in tasks that need one.

    Raises ConfigError for a bad preset, InputError for damaged or changed data, BackendError when the engine
    fails (what was finished stays on disk).
    """
    options = options or Options()
    setting = Setting(chat, sandbox, PlayConfig(), seed)  # type: ignore[arg-type]
    if user is not None:
        setting = replace(setting, user=user.chat, user_key=user.key)
    folder = _folder(out, suite, subject, seed, options)
    run = _Run(suite, subject, setting, options, folder, setup_of(chat))
    run.plan()
    run.write()
    for plan in run.plans:
        started = time.monotonic()
        log = AnswerLog(run.folder / f"{plan.task.name}.jsonl", plan.asked, plan.task.grader)
        bar = counter(len(plan.questions) * plan.ask.n, f"{plan.task.name} on {subject.ref}")
        with log, nullcontext() if quiet else bar as progress:
            await _regrade(plan, log, setting, everything=False)
            asker = _asker(run, plan, log, _Note(progress, log))
            try:
                await asker.run(plan.questions)
            finally:
                plan.seconds = time.monotonic() - started
                plan.answers, plan.lost = list(log.answers.values()), asker.problem
                run.write()
    return run.write(finished=True)


async def regrade_suite(
    chat: ChatPolicy,
    suite: QuestionSuite,
    sandbox: Sandbox | None,
    out: Path,
    subject: Subject,
    *,
    seed: int = 0,
    options: Options | None = None,
) -> SuiteReport:
    """Grade the stored answers again; nothing is generated, and `chat` is never asked.

    Raises InputError when there are no answers, or the data is not what was asked.
    """
    options = options or Options()
    folder = _folder(out, suite, subject, seed, options)
    if not (folder / RUN).is_file():
        raise InputError(f"{folder} holds no answers to grade again; leave out --regrade to get some")
    tree = read_json(folder / RUN, "evaluation result")
    setting = Setting(chat, sandbox, PlayConfig(), seed)  # type: ignore[arg-type]
    run = _Run(suite, subject, setting, options, folder, tree["setup"])
    run.plan(tree["tasks"])
    for plan in run.plans:
        log = AnswerLog(folder / f"{plan.task.name}.jsonl", plan.asked, plan.task.grader)
        with log:
            await _regrade(plan, log, setting, everything=True)
            plan.answers = list(log.answers.values())
    return run.write(finished=True)


def _asker(run: _Run, plan: Plan, log: AnswerLog, note: OnAnswer) -> Asker | DialogueAsker | SharedAsker:
    if isinstance(run.setting.chat.policy, SharedPolicy):
        return SharedAsker(run.suite.name, plan, run.setting, run.options, log, note)
    kind: Any = DialogueAsker if isinstance(plan.task, DialogueTask) else Asker
    made: Asker | DialogueAsker = kind(plan.task, plan.ask, run.setting, log, note)
    return made


async def _regrade(plan: Plan, log: AnswerLog, setting: Setting, everything: bool) -> None:
    """Grade all answers again, or those of another grader. Raises InputError when the grader is lost."""
    keys = set(log.answers) if everything else log.stale
    if not keys:
        return
    by_id = {question.id: question for question in plan.questions}
    graded = dict(log.answers)

    async def one(answer: Answer) -> None:
        new = await grade_again(plan.task, plan.ask, by_id[answer.item_id], answer, setting)
        if new is None:
            raise InputError(f"the grader of {plan.task.name} was lost; nothing was changed, try again")
        graded[answer.key] = new

    todo = [log.answers[key] for key in sorted(keys) if key[0] in by_id]
    for at in range(0, len(todo), 64):
        await together([one(answer) for answer in todo[at : at + 64]])
    log.replace(graded.values())


def _folder(out: Path, suite: QuestionSuite, subject: Subject, seed: int, options: Options) -> Path:
    return make_folder(out / task_name(suite.name, subject, seed, options.limit))


class _Run:
    """The tasks of one command and the document about them."""

    def __init__(
        self,
        suite: QuestionSuite,
        subject: Subject,
        setting: Setting,
        options: Options,
        folder: Path,
        setup: dict[str, Any],
    ) -> None:
        self.suite, self.subject, self.setting, self.seed = suite, subject, setting, setting.seed
        self.options, self.folder, self.setup = options, folder, setup
        self.plans: list[Plan] = []
        self.absent: list[TaskReport] = []
        self.started = time.monotonic()

    def plan(self, stored: dict[str, Any] | None = None) -> None:
        """Load the data of all tasks; `stored` (of `run.json`) says how they were asked, for `--regrade`."""
        preset = load_preset(self.options.preset or self.suite.preset) if stored is None else None
        for task in self.suite.tasks:
            row = (stored or {}).get(task.name, {})
            known = row.get("ask")
            if stored is not None and known is None:
                reason, command = row.get("reason", "never asked"), row.get("command", "")
                self.absent.append(TaskReport(task.name, "not run", reason, command))
                continue
            if stored is None and (lack := task.lacks(self.setting)) is not None:
                self.absent.append(TaskReport(task.name, "not run", *lack))
                continue
            try:
                loaded = task.load(self.options.data_root, self.options.allow_changed)
            except DataAbsent as error:
                self.absent.append(TaskReport(task.name, "not run", error.reason, error.command))
                continue
            if preset is not None:
                ask = preset.ask(
                    task.name,
                    task.style,
                    task.template,
                    n=task.n,
                    max_tokens=task.max_tokens,
                    samples=self.options.samples,
                )
            else:
                ask = Ask(**{**known, "stop": tuple(known["stop"])})
            task = task.configured(ask)
            if preset is not None and isinstance(task, DialogueTask):
                task.user_ask = preset.user_ask(task.user_ask)
            more = task.protocol(self.setting) if stored is None else row["protocol"].get("more")
            self.plans.append(self._planned(task, loaded, ask, more))
        self._same_questions(stored)

    def _planned(self, task: Task, loaded: Questions, ask: Ask, more: dict[str, Any] | None) -> Plan:
        options, who = self.options, [self.setup["key"], self.subject.checkpoint]
        return planned(task, loaded, ask, limit=options.limit, seed=self.seed, who=who, more=more)

    def _same_questions(self, stored: dict[str, Any] | None) -> None:
        for plan in self.plans if stored is not None else ():
            before = (stored or {})[plan.task.name]["asked"]
            if plan.asked != before:
                raise InputError(
                    f"the stored answers of {plan.task.name} belong to other data, another checkpoint or "
                    "another version; leave out --regrade to ask again"
                )

    def write(self, finished: bool = False) -> SuiteReport:
        """Write `run.json` (and the page when `finished`) and return the report."""
        report = self.report()
        write_json(self.folder / RUN, self._document(report))
        if finished:
            from spade_evals.page import write_page

            write_page(self.folder / PAGE, report, {p.task.name: p.answers for p in self.plans})
        return report

    def report(self) -> SuiteReport:
        """All tasks as they stand, in the suite's order."""
        by_name = {p.task.name: p.report() for p in self.plans}
        by_name |= {report.name: report for report in self.absent}
        tasks = tuple(by_name[t.name] for t in self.suite.tasks if t.name in by_name)
        rows = [result_of(answer) for plan in self.plans for answer in plan.answers]
        played = {q.part or p.task.name for p in self.plans for q in p.questions}
        if not self.options.allow_missing:
            played |= {report.name for report in self.absent}
        result = summarise(self.suite.name, self.subject.ref, self.fingerprint, rows, played)
        return SuiteReport(
            result=result,
            tasks=tasks,
            complete=all(task.state != "partial" for task in tasks),
            absent_allowed=self.options.allow_missing,
            folder=str(self.folder),
            notes=tuple(self.setup.get("notes", ())),
        )

    @property
    def protocol(self) -> dict[str, Any]:
        """What must be equal for two results to be comparable. The preset counts by content, not by name."""
        return {
            "suite": self.suite.name,
            "version": self.suite.version,
            "n_items": sum(len(p.questions) for p in self.plans),
            "seed": self.seed,
            "tasks": {p.task.name: p.fingerprint for p in self.plans},
        }

    @property
    def fingerprint(self) -> str:
        """16 hex digits over the protocol."""
        return digest(self.protocol)

    def _document(self, report: SuiteReport) -> dict[str, Any]:
        tasks: dict[str, Any] = {task.name: asdict(task) for task in report.tasks}
        for plan in self.plans:
            tasks[plan.task.name] |= {
                "fingerprint": plan.fingerprint,
                "protocol": plan.protocol,
                "asked": plan.asked,
                "ask": asdict(plan.ask),
                "source": {k: v for k, v in asdict(plan.task.data).items() if k != "root"},
            }
        return {
            "format": FORMAT,
            "complete": report.complete,
            "result": plain(report.result),
            "fingerprint": self.fingerprint,
            "protocol": self.protocol,
            "preset": self.options.preset or self.suite.preset,
            "tasks": plain(tasks),
            "setup": self.setup,
            "ref": self.subject.ref,
            "checkpoint": self.subject.checkpoint,
            "origin": plain(self.subject.origin),
            "samples": [f"{p.task.name}.jsonl" for p in self.plans],
            "keys": [key_of(p.asked, p.task.grader) for p in self.plans],
            "seconds": round(time.monotonic() - self.started, 2),
        }


def result_of(answer: Answer) -> ItemResult:
    """The part of an answer that scores are made of."""
    return ItemResult(
        answer.item_id, answer.part, answer.cluster, answer.sample, answer.outcome, answer.end, answer.tokens
    )


class _Note:
    """Moves the progress bar: how fast answers come, and how good they are so far."""

    def __init__(self, progress: Counter | None, log: AnswerLog) -> None:
        self.progress, self.done, self.before = progress, len(log.answers), len(log.answers)
        self.total = sum(map(_value, log.answers.values()))
        self.started = time.monotonic()
        if progress is not None:
            progress.update(self.done)

    def __call__(self, answer: Answer) -> None:
        self.done += 1
        self.total += _value(answer)
        if self.progress is not None:
            rate = (self.done - self.before) / max(1e-9, time.monotonic() - self.started)
            self.progress.update(self.done, f"{rate:.1f}/s · mean {self.total / self.done:.3f}")


def _value(answer: Answer) -> float:
    return answer.outcome.value if isinstance(answer.outcome, Scored) else 0.0
