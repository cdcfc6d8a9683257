"""Run suites on a checkpoint: open the model once, hand every suite to what runs its kind.

    run_eval, run_suites ─► open the model ─┬► suite of tasks    ─► `spade_evals.question_run`
                                            ├► suite of programs ─► `spade_evals.playing`
                                            └► lm-eval:TASK      ─► `spade_evals.harness`

All write as they go, and the same command again does only what is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade import registry
from spade.config import PlayConfig, SandboxConfig, ServingConfig
from spade.errors import ConfigError, InputError
from spade.types import SuiteResult
from spade_evals.harness.options import PREFIX, HarnessOptions
from spade_evals.playing import evaluate as evaluate
from spade_evals.playing import play_suite
from spade_evals.stored import lost
from spade_evals.subject import Subject as Subject
from spade_evals.subject import subject_of as subject_of

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.serving.launch import ChatPolicy
    from spade_evals.question_run import Options
    from spade_evals.task_report import ListReport, SuiteReport
    from spade_evals.users import OpenUser


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
    """Evaluate the model `ref` on a suite and write its files into `out`.

    `seed` fixes items and sampling, so give every checkpoint the same one. `play` defaults to the neutral
    `PlayConfig()`; only its sampling and limits are used. A suite of tasks takes `options` instead and gives
    a `SuiteReport`; see `spade_evals.question_run`. So does `lm-eval:TASK`, with `harness`; see
    `spade_evals.harness`. `pool` is a folder of programs for the suite `games`. Raises InputError for a bad
    reference, ConfigError for an unknown suite, BackendError when the engine fails (what was finished stays
    on disk).
    """
    if suite_name.startswith(PREFIX):
        return _run_harness(ref, suite_name, Path(out), seed, limit, serving, quiet, harness)
    suites = {suite_name: _suite(suite_name, pool)}
    job = Job(ref, Path(out), seed, limit, play or PlayConfig(), quiet, options, pool)
    return asyncio.run(_open_and_run(job, suites, serving or ServingConfig(), sandbox or SandboxConfig()))[0]


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
    job = Job(ref, Path(out), seed, limit, play or PlayConfig(), quiet, options, pool)
    results = asyncio.run(_open_and_run(job, suites, serving or ServingConfig(), sandbox or SandboxConfig()))
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
    pool: Path | None = None


async def _open_and_run(
    job: Job, named: Mapping[str, Any], serving: ServingConfig, sandbox: SandboxConfig
) -> list[SuiteResult | SuiteReport]:
    from spade.envs.nodes import start_sandbox
    from spade.serving.launch import open_chat, resolve_ref
    from spade_evals.shared import open_shared, shared_user
    from spade_evals.users import open_user, wanted_user

    suites = list(named.values())
    subject = subject_of(job.ref)
    # Nothing is generated for --regrade, so the model is not loaded.
    regrade = job.options is not None and job.options.regrade
    who = "" if regrade else wanted_user(suites, job.options)
    for suite in () if who or regrade else suites:
        if getattr(suite, "needs_user", False):
            suite.with_user(None)  # says so now, and not after the suites before it
    shared = bool(serving.shards) and not regrade and resolve_ref(job.ref).kind == "local"
    if shared:
        chat = await open_shared(job.ref, named, serving, sandbox, pool=job.pool, user=who)
        sandbox = sandbox.model_copy(update={"nodes": "local"})  # the shards have their own
    else:
        chat = await open_chat("scripted:null" if regrade else job.ref, serving)
    user = None
    try:
        if who:
            user = shared_user(chat) if shared else await open_user(who, serving, (job.ref, chat))
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
    result, report = await play_suite(
        chat, suite, box, job.out, subject, seed=job.seed, limit=job.limit, play=job.play, quiet=job.quiet
    )
    return report or result
