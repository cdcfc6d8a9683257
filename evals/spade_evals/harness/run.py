"""`spade eval --suite lm-eval:TASK[,TASK]`: run the harness on a checkpoint and keep its result as ours.

    OUT/lm-eval-<tasks>/responses.jsonl   one line per request, written when it is answered
    OUT/lm-eval-<tasks>/<task>.jsonl      one line per question, with its value
    OUT/lm-eval-<tasks>/run.json          as of any suite, with the harness' own tables under `harness`
    OUT/lm-eval-<tasks>/index.html        the samples, to look at

The harness has the main thread, because some of its graders refuse any other; the model's event loop has a
thread of its own.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade.config import ServingConfig
from spade.errors import InputError
from spade.files import make_folder, plain, write_json
from spade.report.progress import counter
from spade_evals.harness.loading import Loaded, load_tasks, quiet_harness
from spade_evals.harness.loop import Wait, loop_thread
from spade_evals.harness.options import PREFIX, HarnessOptions
from spade_evals.harness.rows import Rows, rows_of
from spade_evals.lines import LineFile
from spade_evals.planning import digest
from spade_evals.provenance import setup_of
from spade_evals.scores import task_score
from spade_evals.stored import FORMAT
from spade_evals.subject import Subject, subject_of, task_name
from spade_evals.suite import summarise
from spade_evals.task_report import SuiteReport, TaskReport

if TYPE_CHECKING:
    from spade.serving.chat import ChatPolicy
    from spade_evals.harness.model import ServedLM

ITERATIONS = 1000
"""Bootstrap draws of the harness, for metrics without a closed error; ours are made of the samples."""


def run_harness(
    ref: str,
    suite: str,
    out: Path,
    *,
    options: HarnessOptions | None = None,
    seed: int = 0,
    limit: int | None = None,
    serving: ServingConfig | None = None,
    quiet: bool = False,
) -> SuiteReport:
    """Run `lm-eval:TASK,...` on the model `ref`; answers that are on disk are not asked again.

    Raises InputError when the harness is not installed, does not know a task or cannot have its data, or the
    model cannot do what a task asks; BackendError when the engine fails.
    """
    if find_spec("lm_eval") is None:
        raise InputError(f"{suite} needs the extra lm-eval: pip install 'spade-rl[lm-eval]'")
    options = options or HarnessOptions()
    if ref.startswith("openai:") and not options.apply_chat_template:
        raise InputError("an endpoint takes conversations and no plain text; add --apply-chat-template")
    subject = subject_of(ref)
    with quiet_harness():
        loaded = load_tasks(suite, options.include_path)
        folder = make_folder(out / task_name(_folder(loaded.names), subject, seed, limit))
        with loop_thread() as wait:
            from spade.serving.launch import open_chat

            chat = wait(open_chat(ref, serving or ServingConfig()))
            try:
                run = _Run(subject, f"{PREFIX}{','.join(loaded.names)}", folder, options, seed, limit)
                return run.evaluate(chat, wait, loaded, quiet)
            finally:
                wait(chat.policy.close())


def _folder(names: Sequence[str]) -> str:
    whole = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(["lm-eval", *names]))
    return whole if len(whole) <= 80 else f"{whole[:60]}-{digest(list(names))}"


# --- one run -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    subject: Subject
    suite: str
    folder: Path
    options: HarnessOptions
    seed: int
    limit: int | None

    def evaluate(self, chat: ChatPolicy, wait: Wait, loaded: Loaded, quiet: bool) -> SuiteReport:
        """Ask, convert, write."""
        from lm_eval.evaluator import evaluate

        from spade_evals.harness.model import ServedLM
        from spade_evals.harness.responses import ResponseLog

        setup = setup_of(chat)
        started = time.monotonic()
        bar = contextlib.nullcontext() if quiet else counter(1, f"{self.suite} on {self.subject.ref}")
        with (
            ResponseLog(self.folder / "responses.jsonl", [setup["key"], self.subject.checkpoint]) as log,
            bar as progress,
        ):

            def on_done(done: int, total: int) -> None:
                if progress is not None:
                    progress.total = total
                    progress.update(done)

            lm = ServedLM(
                chat, wait, log, seed=self.seed, chat_template=self.options.apply_chat_template,
                on_done=on_done,
            )  # fmt: skip
            # Not its `simple_evaluate`, which starts a dozen programs to describe the machine.
            loaded.prepare(self.options.num_fewshot)
            found = evaluate(
                lm=lm,
                task_dict={"tasks": loaded.tasks, "groups": loaded.groups},
                limit=self.limit,
                bootstrap_iters=ITERATIONS,
                apply_chat_template=self.options.apply_chat_template,
                fewshot_as_multiturn=True,
            )
        return self._write(found, lm, setup, time.monotonic() - started)

    def _write(self, found: Any, lm: ServedLM, setup: dict[str, Any], seconds: float) -> SuiteReport:
        from spade_evals.harness.model import readable
        from spade_evals.page import write_page

        rows = {task: rows_of(task, samples, lm.take, readable) for task, samples in found["samples"].items()}
        protocols = {task: self._protocol(found, task, rows[task]) for task in rows}
        fingerprint = digest(self._whole(protocols))
        report = self._report(found, rows, lm, fingerprint)
        keys = {task: digest([p, setup["key"], self.subject.checkpoint]) for task, p in protocols.items()}
        for task, own in rows.items():
            _write_lines(self.folder / f"{task}.jsonl", keys[task], own)
        document = {
            "format": FORMAT,
            "complete": True,
            "result": plain(report.result),
            "fingerprint": fingerprint,
            "protocol": self._whole(protocols),
            "preset": "",
            "tasks": plain({task.name: task for task in report.tasks}),
            "setup": setup,
            "ref": self.subject.ref,
            "checkpoint": self.subject.checkpoint,
            "origin": plain(self.subject.origin),
            "samples": [f"{task}.jsonl" for task in rows],
            "keys": list(keys.values()),
            "seconds": round(seconds, 2),
            "harness": {
                key: found.get(key)
                for key in ("results", "groups", "configs", "versions", "n-shot", "n-samples")
            }
            | {"version": version("lm_eval")},
        }
        write_json(self.folder / "run.json", document)
        write_page(self.folder / "index.html", report, {task: own.answers for task, own in rows.items()})
        return report

    def _protocol(self, found: Any, task: str, own: Rows) -> dict[str, Any]:
        """What must be equal for two results of a task to be comparable."""
        config = found["configs"][task]
        grading = {
            key: config.get(key) for key in ("metric_list", "filter_list", "repeats", "process_results")
        }
        return {
            "task": task,
            "version": found["versions"].get(task),
            "harness": version("lm_eval"),
            "n_items": len({sample["doc_id"] for sample in found["samples"][task]}),
            "requests": digest(
                [[s["doc_hash"], s["arguments"], str(s["target"])] for s in found["samples"][task]]
            ),
            "grading": digest(plain(grading)),
            "num_fewshot": found["n-shot"].get(task),
            "metric": own.metric,
            "seed": self.seed,
        }

    def _whole(self, protocols: dict[str, dict[str, Any]]) -> dict[str, Any]:
        return {
            "suite": self.suite,
            "version": 1,
            "n_items": sum(p["n_items"] for p in protocols.values()),
            "seed": self.seed,
            "tasks": {task: digest(p) for task, p in protocols.items()},
        }

    def _report(self, found: Any, rows: dict[str, Rows], lm: ServedLM, fingerprint: str) -> SuiteReport:
        from spade_evals.question_run import result_of

        tasks = []
        for task, own in rows.items():
            seconds = float(lm.seconds[task])
            score = task_score(own.answers, 1, 0, seconds) if own.answers else None
            tasks.append(TaskReport(task, "done", score=score))
        items = [result_of(answer) for own in rows.values() for answer in own.answers]
        result = summarise(self.suite, self.subject.ref, fingerprint, items, set(rows))
        return SuiteReport(
            result, tuple(tasks), folder=str(self.folder), notes=tuple(_notes(found, rows, lm))
        )


def _write_lines(path: Path, key: str, own: Rows) -> None:
    file = LineFile(path, lambda known: known == key)
    file.open()
    try:
        file.replace({"key": key, **plain(answer)} for answer in own.answers)
    finally:
        file.close()


def _notes(found: Any, rows: dict[str, Rows], lm: ServedLM) -> Iterator[str]:
    """The harness' own figures, and what was changed to make prompts fit."""
    for name, values in found["results"].items():
        said = [
            f"{key} {value:.4g}{_error(values, key)}" + (" (the score)" if _is_score(rows, name, key) else "")
            for key, value in values.items()
            if "," in key and "_stderr," not in key and isinstance(value, (int, float))
        ]
        if said:
            yield f"{name}: {'; '.join(said)}"
    for task, own in rows.items():
        if not own.answers:
            yield f"{task}: its metrics are of the whole set, so it has no score to average"
    if lm.prompts_cut:
        yield f"{lm.prompts_cut} prompts were cut on the left to fit a context of {lm.max_length:,} tokens"
    if lm.answers_shortened:
        yield f"{lm.answers_shortened} answers were given less room than their task asks for"


def _is_score(rows: dict[str, Rows], name: str, key: str) -> bool:
    return name in rows and rows[name].metric == key


def _error(values: dict[str, Any], key: str) -> str:
    metric, _, kind = key.partition(",")
    stderr = values.get(f"{metric}_stderr,{kind}")
    return f" ± {stderr:.2g}" if isinstance(stderr, (int, float)) else ""
