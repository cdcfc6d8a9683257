"""Run a suite on a checkpoint: chunk by chunk, resumable, faults apart from scores.

Two files are written into the output folder: `<task>.jsonl` with one line per item as chunks finish, and
`<task>.json` with the result, its protocol and where the checkpoint comes from. Running the same command
again plays only what is missing; samples of another protocol or checkpoint are moved aside, never mixed in.
An infrastructure fault is not kept as an answer: such items are played again on the next run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade import registry
from spade.config import PlayConfig, SandboxConfig, ServingConfig
from spade.errors import ConfigError, FaultKind, InputError
from spade.files import append_lines, cut_torn_line, plain, read_jsonl, write_json
from spade.report.progress import Counter, counter
from spade.types import Fault, Item, ItemResult, SuiteResult, from_json
from spade_evals.harness.options import PREFIX, HarnessOptions
from spade_evals.provenance import Origin, checkpoint_hash, origin_of, require_folder, run_of, step_of
from spade_evals.suite import EvalProtocol, Setting, Suite, protocol_of, summarise

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.serving.launch import ChatPolicy
    from spade_evals.question_run import Options
    from spade_evals.task_report import ListReport, SuiteReport
    from spade_evals.users import OpenUser

FORMAT = "spade-eval-1"
CHUNK = 128
"""Items per chunk on an engine that does not say how many rows it takes."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The checkpoint under evaluation."""

    ref: str
    checkpoint: str
    """Content hash of the weights, or of the reference's words."""
    origin: Origin = field(default_factory=Origin)


def run_eval(
    ref: str,
    suite_name: str,
    out: Path | str,
    *,
    seed: int = 0,
    limit: int | None = None,
    serving: ServingConfig | None = None,
    sandbox: SandboxConfig | None = None,
    play: PlayConfig | None = None,
    quiet: bool = False,
    options: Options | None = None,
    harness: HarnessOptions | None = None,
    pool: Path | None = None,
) -> SuiteResult | SuiteReport:
    """Evaluate the model `ref` on a suite and write the files named above into `out`.

    `seed` fixes items and sampling, so give every checkpoint the same one. `play` defaults to the neutral
    `PlayConfig()`; only its sampling and limits are used. A suite of tasks takes `options` instead and gives
    a `SuiteReport`; see `spade_evals.question_run`. So does `lm-eval:TASK`, with `harness`; see
    `spade_evals.harness`. `pool` is a folder of programs for the suite `games`. Raises InputError for a bad
    reference, ConfigError for an unknown suite, BackendError when the engine fails (what was finished stays
    on disk).
    """
    if suite_name.startswith(PREFIX):
        return _run_harness(ref, suite_name, Path(out), seed, limit, serving, quiet, harness)
    suite = _suite(suite_name, pool)
    job = Job(ref, Path(out), seed, limit, play or PlayConfig(), quiet, options)
    return asyncio.run(_open_and_run(job, [suite], serving or ServingConfig(), sandbox or SandboxConfig()))[0]


def run_suites(
    ref: str,
    names: Sequence[str],
    out: Path | str,
    *,
    seed: int = 0,
    limit: int | None = None,
    serving: ServingConfig | None = None,
    sandbox: SandboxConfig | None = None,
    play: PlayConfig | None = None,
    quiet: bool = False,
    options: Options | None = None,
    harness: HarnessOptions | None = None,
    pool: Path | None = None,
) -> ListReport:
    """Several suites on one model, opened once (and again for lm-evaluation-harness). A suite that this
    installation lacks is a row of the report.

    Raises the same as `run_eval`, but for unknown suites.
    """
    from spade_evals.question_run import Options
    from spade_evals.task_report import ListReport, SuiteReport

    known = registry.names("suite")
    foreign = [name for name in names if name.startswith(PREFIX)]
    names = [name for name in names if name not in foreign]
    suites = {name: _suite(name, pool) for name in names if ":" in name or name in known}
    job = Job(ref, Path(out), seed, limit, play or PlayConfig(), quiet, options)
    results = asyncio.run(
        _open_and_run(job, list(suites.values()), serving or ServingConfig(), sandbox or SandboxConfig())
    )
    reports = tuple(
        r if isinstance(r, SuiteReport) else SuiteReport(r, complete=not lost(r)) for r in results
    )
    reports += tuple(
        _run_harness(ref, name, Path(out), seed, limit, serving, quiet, harness) for name in foreign
    )
    absent = tuple(name for name in names if name not in suites)
    return ListReport(reports, absent, (options or Options()).allow_missing)


def _suite(name: str, pool: Path | None) -> Any:
    """The suite behind a name, on the programs of a folder where one is given."""
    suite = registry.resolve("suite", name)()
    if pool is None:
        return suite
    if not hasattr(suite, "with_pool"):
        raise ConfigError(f"--pool names programs for the suite games; the suite '{name}' has its own items")
    return suite.with_pool(pool)


def _run_harness(
    ref: str,
    name: str,
    out: Path,
    seed: int,
    limit: int | None,
    serving: ServingConfig | None,
    quiet: bool,
    harness: HarnessOptions | None,
) -> SuiteReport:
    from spade_evals.harness.run import run_harness

    return run_harness(ref, name, out, options=harness, seed=seed, limit=limit, serving=serving, quiet=quiet)


@dataclass(frozen=True, slots=True)
class Job:
    """What a command was asked to do."""

    ref: str
    out: Path
    seed: int
    limit: int | None
    play: PlayConfig
    quiet: bool
    options: Options | None


async def _open_and_run(
    job: Job, suites: Sequence[Any], serving: ServingConfig, sandbox: SandboxConfig
) -> list[SuiteResult | SuiteReport]:
    from spade.envs.nodes import start_sandbox
    from spade.serving.launch import open_chat
    from spade_evals.users import open_user, wanted_user

    subject = subject_of(job.ref)
    # Nothing is generated for --regrade, so the model is not loaded.
    regrade = job.options is not None and job.options.regrade
    who = "" if regrade else wanted_user(suites, job.options)
    for suite in () if who or regrade else suites:
        if getattr(suite, "needs_user", False):
            suite.with_user(None)  # says so now, and not after the suites before it
    chat = await open_chat("scripted:null" if regrade else job.ref, serving)
    user = None
    try:
        user = await open_user(who, serving, (job.ref, chat)) if who else None
        async with await start_sandbox(sandbox) as box:
            return [await _run_one(suite, chat, box, subject, job, user) for suite in suites]
    finally:
        await chat.policy.close()
        if user is not None:
            await user.close()


async def evaluate_open(
    chat: ChatPolicy, sandbox: Sandbox, suite: str, ref: str, out: Path, *, seed: int, limit: int | None
) -> SuiteResult:
    """Evaluate an open policy as the checkpoint `ref`, whose weights it has, with the defaults for play.

    For the training loop; neither policy nor sandbox is closed, nothing is shown. Raises as `run_eval`.
    """
    job = Job(ref, out, seed, limit, PlayConfig(), True, None)
    found = await _run_one(_suite(suite, None), chat, sandbox, subject_of(ref), job)
    return found if isinstance(found, SuiteResult) else found.result


async def _run_one(
    suite: Any, chat: ChatPolicy, box: Sandbox, subject: Subject, job: Job, user: OpenUser | None = None
) -> SuiteResult | SuiteReport:
    from spade_evals.question import QuestionSuite
    from spade_evals.question_run import Options, ask_suite, regrade_suite

    if isinstance(suite, QuestionSuite):
        options = replace(job.options or Options(), limit=job.limit)
        if options.regrade:
            return await regrade_suite(chat, suite, box, job.out, subject, seed=job.seed, options=options)
        return await ask_suite(
            chat, suite, box, job.out, subject, seed=job.seed, options=options, quiet=job.quiet, user=user
        )
    if job.options is not None and job.options.regrade:
        raise InputError(f"the suite '{suite.name}' is played, not graded, so it cannot be graded again")
    if getattr(suite, "needs_user", False):
        suite = suite.with_user(user)
    result, report = await _evaluate(
        chat, suite, box, job.out, subject, seed=job.seed, limit=job.limit, play=job.play, quiet=job.quiet
    )
    return report or result


def lost(result: SuiteResult) -> int:
    """Items that the machinery lost; the next run plays them again."""
    return result.faults.get(FaultKind.INFRASTRUCTURE.value, 0)


def subject_of(ref: str) -> Subject:
    """Resolve a reference to its hash and training run. Raises InputError for an unknown one."""
    from spade.serving.launch import resolve_ref

    model = resolve_ref(ref)
    step = step_of(model.path) if model.step is None else model.step
    return Subject(ref, checkpoint_hash(model.path, ref), origin_of(run_of(model.path), step))


async def evaluate(
    chat: ChatPolicy,
    suite: Suite,
    sandbox: Sandbox,
    out: Path,
    subject: Subject,
    *,
    seed: int = 0,
    limit: int | None = None,
    play: PlayConfig | None = None,
    quiet: bool = False,
) -> SuiteResult:
    """The same with an open policy and sandbox; neither is closed."""
    result, _ = await _evaluate(
        chat, suite, sandbox, out, subject, seed=seed, limit=limit, play=play, quiet=quiet
    )
    return result


async def _evaluate(
    chat: ChatPolicy,
    suite: Suite,
    sandbox: Sandbox,
    out: Path,
    subject: Subject,
    *,
    seed: int,
    limit: int | None,
    play: PlayConfig | None,
    quiet: bool,
) -> tuple[SuiteResult, SuiteReport | None]:
    """The result, and the suite's own report where it makes one; its `details` go into the result file."""
    setting = Setting(chat, sandbox, play or PlayConfig(), seed)
    items = suite.items(seed, limit)
    protocol = protocol_of(suite, items, setting)
    store = Samples(require_folder(out) / f"{task_name(suite.name, subject, seed, limit)}.jsonl")
    done = store.load(f"{protocol.fingerprint}-{subject.checkpoint}", {item.id for item in items})
    missing = [item for item in items if item.id not in done]
    started = time.monotonic()
    with _progress(quiet, len(items), suite.name, subject.ref) as progress:
        await _play_missing(suite, missing, setting, store, done, progress, len(items) - len(missing))
    results = [done[item.id] for item in items]
    played = {item.part for item in items}
    result = summarise(suite.name, subject.ref, protocol.fingerprint, results, played)
    seconds = time.monotonic() - started
    report = _own_report(suite, result, results, store.path.parent, subject)
    document = _document(result, protocol, subject, store.path.name, seconds)
    if report is not None:
        document["details"] = plain(getattr(report, "details", {}))
    write_json(store.path.with_suffix(".json"), document)
    return result, report


def _own_report(
    suite: Any, result: SuiteResult, rows: Sequence[ItemResult], folder: Path, subject: Subject
) -> SuiteReport | None:
    """What a suite with a method `report(base, rows, run)` has to say besides its result."""
    from spade_evals.task_report import SuiteReport

    if not hasattr(suite, "report"):
        return None
    run = Path(subject.origin.folder) if subject.origin.folder else None
    made: SuiteReport = suite.report(
        SuiteReport(result, complete=not lost(result), folder=str(folder)), rows, run
    )
    return made


def _progress(quiet: bool, total: int, suite: str, ref: str) -> AbstractContextManager[Counter | None]:
    return nullcontext() if quiet else counter(total, f"{suite} on {ref}")


async def _play_missing(
    suite: Suite,
    missing: Sequence[Item],
    setting: Setting,
    store: Samples,
    done: dict[str, ItemResult],
    progress: Counter | None,
    before: int,
) -> None:
    """Play chunk after chunk; each is on disk before the next starts."""
    policy = setting.chat.policy
    size = max(1, policy.max_rows) if policy.lockstep else CHUNK
    for at in range(0, len(missing), size):
        base = before + at

        def on_done(finished: int, total: int, base: int = base) -> None:
            if progress is not None:
                progress.update(base + finished)

        rows = await suite.run(missing[at : at + size], replace(setting, on_done=on_done))
        store.append(rows)
        done.update({row.item_id: row for row in rows})


class Samples:
    """The item results of one task on disk, keyed by protocol and checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.key = ""

    def load(self, key: str, wanted: set[str]) -> dict[str, ItemResult]:
        """What is already there for `key`, by item id. A file of another key is moved aside."""
        self.key = key
        if not self.path.exists():
            return {}
        cut_torn_line(self.path)
        rows = read_jsonl(self.path)
        other = next((str(row.get("key")) for row in rows if row.get("key") != key), None)
        if other is not None:
            self.path.rename(self.path.with_name(f"{self.path.stem}.{other[:12]}.old.jsonl"))
            return {}
        results = [from_json(ItemResult, row) for row in rows]
        return {r.item_id: r for r in results if r.item_id in wanted and not _lost(r)}

    def append(self, rows: Sequence[ItemResult]) -> None:
        """Write finished items; on return they are on disk."""
        append_lines(self.path, [{"key": self.key, **plain(row)} for row in rows])


def _lost(row: ItemResult) -> bool:
    return isinstance(row.outcome, Fault) and row.outcome.kind is FaultKind.INFRASTRUCTURE


def task_name(suite: str, subject: Subject, seed: int, limit: int | None) -> str:
    """File name of a task: the suite, the step of the checkpoint, and what differs from the defaults."""
    step = subject.origin.step
    parts = [suite if step is None else f"{suite}@{step:06d}"]
    parts += [f"s{seed}"] if seed else []
    parts += [f"limit{limit}"] if limit is not None else []
    return "-".join(parts)


def _document(
    result: SuiteResult, protocol: EvalProtocol, subject: Subject, samples: str, seconds: float
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "complete": not lost(result),
        "result": plain(result),
        "fingerprint": protocol.fingerprint,
        "protocol": plain(protocol),
        "ref": subject.ref,
        "checkpoint": subject.checkpoint,
        "origin": plain(subject.origin),
        "samples": samples,
        "seconds": round(seconds, 2),
    }
