r"""What evaluating costs besides the model: beside lm-evaluation-harness in one run, and the graders alone.

    python benchmarks/evals.py [--harness-python PATH] [--items 200] [--only engine,bare,grading] [--json]

* `engine`: the same GSM8K-format items, prompt, greedy decoding, token limit, stop text, model, number type
  and batch in both programs, each a process from its start to its end; then item by item whether both said
  and graded the same. Bars: not slower end to end, the same verdict on every item.
* `bare`: the same without a model, ours with `scripted:constant`, the harness with its `dummy`.
* `grading`: references graded by the math, choice and code graders, from `$SPADE_DATA` or `--data`, else from
  the few items of the suite `smoke`.

Costs per item are differences between a small and a large run, so starting up is not in them. The harness
runs under `--harness-python` (default: this one); without it there, `engine` and `bare` are not measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envs_figures import Figure
from evals_programs import Harness, Ours, Program, Run, has_harness
from machine import Load, machine, tree_seconds
from tabulate import tabulate

from spade.config import PlayConfig, SandboxConfig
from spade.envs.sandbox import Sandbox
from spade.errors import InputError
from spade.serving.launch import resolve_ref
from spade_evals.asking import GRADING
from spade_evals.question import Grade, GradeVerdict, Question, Task, judge
from spade_evals.suite import Setting
from spade_evals.suites import smoke
from spade_evals.tasks.code import HumanEval
from spade_evals.tasks.math import Math500
from spade_evals.tasks.science import MmluStem

PAIRS: tuple[tuple[str, Callable[[], Task], str], ...] = (
    ("math", Math500, "smoke_math500"),
    ("choice", MmluStem, "smoke_mmlu_stem"),
    ("code", HumanEval, "smoke_humaneval"),
)
"""Grader, the benchmark it is measured on, and what stands in for it."""

LEAST = 160
"""Answers graded by each; few questions are repeated."""


def engine(args: argparse.Namespace, folder: Path) -> list[Figure]:
    """Both programs on the same model."""
    model = resolve_ref(args.ckpt).path
    if model is None:
        raise SystemExit(f"{args.ckpt} is no folder that both programs can load")
    ours = Ours(folder, str(model), args.batch)
    theirs = Harness(folder, args.harness_python, args.batch, model=str(model))
    rows, both = compared("with a model", ours, theirs, args)
    (one, _), (other, _) = both
    same_text = sum(one.texts[i] == other.texts[i] for i in one.texts)
    same = sum(one.correct[i] == other.correct[i] for i in one.texts)
    for i in one.texts:
        if one.correct[i] != other.correct[i]:
            print(f"item {i}: {one.texts[i]!r} against {other.texts[i]!r}", file=sys.stderr)
    right = f"right: {sum(one.correct.values())} and {sum(other.correct.values())}"
    return [
        *rows,
        Figure("items with the same text", same_text, "items", note=f"of {len(one.texts)}"),
        Figure("items with the same verdict", same, "items", bar=len(one.texts), note=right),
    ]


def bare(args: argparse.Namespace, folder: Path) -> list[Figure]:
    """Both programs without a model, on more items."""
    ours = Ours(folder, r"scripted:constant:\boxed{3}", args.batch)
    theirs = Harness(folder, args.harness_python, args.batch)
    return compared("without a model", ours, theirs, args, times=5)[0]


def compared(
    what: str, ours: Program, theirs: Program, args: argparse.Namespace, times: int = 1
) -> tuple[list[Figure], list[tuple[Run, Run]]]:
    """Figures of two programs in turn, and the (large, small) runs of each with the least wall time."""
    sizes = (times * args.items, max(1, times * args.items // 5))
    runs: list[list[list[Run]]] = [[[], []], [[], []]]
    for repeat in range(args.repeats):
        for at, size in enumerate(sizes):
            for which, program in enumerate((ours, theirs)):
                print(f"{what}: {program.name}, {size} items ...", file=sys.stderr)
                runs[which][at].append(program.run(size, repeat))
    best = [(min(large, key=lambda r: r.wall), min(small, key=lambda r: r.wall)) for large, small in runs]
    figures = []
    for program, (large, small) in zip((ours, theirs), best, strict=True):
        extra = sizes[0] - sizes[1]
        figures += [
            Figure(
                f"{what}: {program.name}, {sizes[0]} items end to end", large.wall, "s",
                note=f"CPU {large.cpu:.1f} s",
            ),
            Figure(
                f"{what}: {program.name}, per item", 1000 * (large.wall - small.wall) / extra, "ms",
                note=f"CPU {1000 * (large.cpu - small.cpu) / extra:.2f} ms",
            ),
        ]  # fmt: skip
    figures.append(
        Figure(f"{what}: harness / ours, end to end", best[1][0].wall / best[0][0].wall, "x", bar=1.0)
    )
    return figures, best


# --- graders -------------------------------------------------------------------------------------------


async def _grading(args: argparse.Namespace) -> list[Figure]:
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        setting = Setting(None, sandbox, PlayConfig(), 0)  # type: ignore[arg-type]
        return [await _graded(*which, setting) for which in _graders(args.data)]


def grading(args: argparse.Namespace, folder: Path) -> list[Figure]:
    """References through the graders, as many at once as an evaluation does."""
    return asyncio.run(_grading(args))


def _graders(data: Path | None) -> list[tuple[str, Task, list[Question]]]:
    ours = {task.name: task for task in smoke.make_suite().tasks}
    out = []
    for name, make, stand_in in PAIRS:
        task = make()
        try:
            questions = task.load(data).questions
        except InputError as error:
            print(f"{name}: {error}; taking {stand_in}", file=sys.stderr)
            task = ours[stand_in]
            questions = task.load().questions
        out.append((name, task, questions))
    return out


async def _graded(name: str, task: Task, questions: list[Question], setting: Setting) -> Figure:
    questions = questions * -(-LEAST // len(questions))
    gate = asyncio.Semaphore(GRADING)

    async def one(question: Question) -> bool:
        async with gate:
            grade = await judge(task, task.solution(question) or "", False, question, setting)
        return isinstance(grade, Grade) and grade.verdict is GradeVerdict.CORRECT

    await asyncio.gather(*map(one, questions[:GRADING]))  # the graders' processes start
    started, before = time.perf_counter(), tree_seconds(os.getpid())
    right = sum(await asyncio.gather(*map(one, questions)))
    wall, cpu = time.perf_counter() - started, tree_seconds(os.getpid()) - before
    if right != len(questions):
        raise SystemExit(f"{task.name}: {len(questions) - right} references are not graded right")
    note = f"{len(questions)} references of {task.name}, CPU {1000 * cpu / len(questions):.2f} ms each"
    return Figure(f"grading {name}", len(questions) / wall, "1/s", note=note)


# --- the command ---------------------------------------------------------------------------------------

SECTIONS = {"engine": engine, "bare": bare, "grading": grading}


def measure(args: argparse.Namespace, only: list[str]) -> list[dict[str, Any]]:
    """All figures as rows, each with the load of the machine during its section."""
    rows = []
    for name in only:
        with tempfile.TemporaryDirectory() as folder, Load() as load:
            figures = SECTIONS[name](args, Path(folder))
        rows += [
            asdict(figure)
            | {"section": name, "missed": figure.missed, "busy": load.busy}
            | {"other_cores": round(load.others, 2)}
            for figure in figures
        ]
    return rows


def shown(row: dict[str, Any]) -> list[str]:
    """One line of the table."""
    bar = "" if row["bar"] is None else f">= {row['bar']:,.4g}"
    judged = "" if row["bar"] is None else "missed" if row["missed"] else "met"
    load = f"{row['other_cores']:.2f}{' busy' if row['busy'] else ''}"
    return [row["name"], f"{row['value']:,.4g} {row['unit']}", bar, judged, load, row["note"]]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what evaluating costs besides the model")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bar is missed or not measured")
    parser.add_argument("--only", default="", help="sections by name, with commas between")
    parser.add_argument("--harness-python", default=sys.executable, help="interpreter that has lm_eval")
    parser.add_argument("--ckpt", default="embedded", help="checkpoint that both programs load")
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64, help="rows at once, in both programs")
    parser.add_argument("--repeats", type=int, default=1, help="the least wall time of so many runs counts")
    parser.add_argument("--data", type=Path, help="data root of the benchmarks, for the graders")
    args = parser.parse_args()
    only = list(filter(None, args.only.split(","))) or list(SECTIONS)
    if unknown := set(only) - set(SECTIONS):
        parser.error(f"there is no section {', '.join(sorted(unknown))}")
    left_out = [] if has_harness(args.harness_python) else [s for s in only if s != "grading"]
    if left_out:
        print(f"NOT MEASURED: {', '.join(left_out)}: no lm_eval for {args.harness_python}", file=sys.stderr)
    rows = measure(args, [name for name in only if name not in left_out])
    facts = machine() | {"items": args.items, "batch": args.batch, "repeats": args.repeats}
    if args.json:
        print(json.dumps({"machine": facts, "figures": rows, "not_measured": left_out}, indent=2))
    else:
        print(", ".join(f"{name} {value}" for name, value in facts.items()))
        headers = ["figure", "value", "bar", "", "others' cores", ""]
        style = "github" if args.markdown else "simple"
        print(tabulate([shown(row) for row in rows], headers, style, disable_numparse=True))
        if any(row["busy"] for row in rows):
            print("busy: others used more than 0.1 cores; wall times of these rows mean little.")
    return 1 if args.check and (left_out or any(row["missed"] for row in rows)) else 0


if __name__ == "__main__":
    sys.exit(main())
