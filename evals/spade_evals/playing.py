"""Play a suite's items with an open policy, chunk by chunk; what is on disk is not played again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade.config import PlayConfig
from spade.files import make_folder, plain, write_json
from spade.report.progress import Counter, counter
from spade.types import Item, ItemResult, SuiteResult
from spade_evals.stored import Samples, document, lost
from spade_evals.subject import Subject, task_name
from spade_evals.suite import Setting, Suite, protocol_of, summarise

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.serving.launch import ChatPolicy
    from spade_evals.task_report import SuiteReport

CHUNK = 128
"""Items per chunk on an engine that does not say how many rows it takes."""


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
    """The result of a suite on an open policy and sandbox; neither is closed. Files: see `stored`."""
    result, _ = await play_suite(
        chat, suite, sandbox, out, subject, seed=seed, limit=limit, play=play, quiet=quiet
    )
    return result


async def play_suite(
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
    store = Samples(make_folder(out) / f"{task_name(suite.name, subject, seed, limit)}.jsonl")
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
    tree = document(result, protocol, subject, store.path.name, seconds)
    if report is not None:
        tree["details"] = plain(getattr(report, "details", {}))
    write_json(store.path.with_suffix(".json"), tree)
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
    """Play chunk after chunk; each is on disk before the next starts. Shards play theirs side by side."""
    from spade_evals.shared import SharedPolicy

    policy = setting.chat.policy

    def keep(rows: Sequence[ItemResult]) -> None:
        store.append(rows)
        done.update({row.item_id: row for row in rows})
        if progress is not None:
            progress.update(len(done))

    if isinstance(policy, SharedPolicy):
        await policy.play(suite.name, missing, setting, keep)
        return
    size = max(1, policy.max_rows) if policy.lockstep else CHUNK
    for at in range(0, len(missing), size):
        base = before + at

        def on_done(finished: int, total: int, base: int = base) -> None:
            if progress is not None:
                progress.update(base + finished)

        keep(await suite.run(missing[at : at + size], replace(setting, on_done=on_done)))
