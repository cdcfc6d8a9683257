"""`spade study`: the study of output distributions, and its lens on any checkpoint."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from spade.cli.main import add_json, emit, lazy, positive
from spade.cli.study_real import NAME, add_real, add_world, is_real, preflight_real, run_real
from spade.errors import InputError
from spade.interrupt import StopFlag

VERBS = "list|run|report|preflight|entropy|prior|dial|verify"
OUT = Path("runs/study")


def add_study(parser: argparse.ArgumentParser) -> None:
    """Arguments of all verbs below `spade study`."""
    sub = parser.add_subparsers(dest="action", required=True, metavar=VERBS)
    for add in (
        _add_list,
        _add_run,
        _add_report,
        _add_verify,
        _add_preflight,
        _add_entropy,
        _add_prior,
        _add_dial,
    ):
        child, handler = add(sub)
        add_json(child)
        child.set_defaults(handler=handler)


# --- experiments -----------------------------------------------------------------------------------------


def _add_list(sub: Any) -> Any:
    parser = sub.add_parser("list", help="experiments, presets, estimated minutes on this machine")
    parser.add_argument("--jobs", type=positive, default=2, help="cells side by side; default 2")
    parser.add_argument(
        "--out", type=Path, default=OUT, help=f"folder whose finished cells count; default {OUT}"
    )
    return parser, _list


def _list(args: argparse.Namespace) -> int:
    grid, runner = "spade.study.grid", "spade.study.runner"
    speed = lazy(f"{runner}:measure_speed")()
    rows = []
    for name in lazy(f"{grid}:experiment_names")():
        experiment = lazy(f"{grid}:load_experiment")(name)
        plans = {p: lazy(f"{grid}:plan")(experiment, p) for p in experiment.presets}
        rows.append(
            {
                "id": name,
                "title": experiment.title,
                "question": experiment.question,
                "presets": {p: _cost(name, x, args, speed) for p, x in plans.items()},
                "default": list(experiment.default),
            }
        )
    lines = []
    for row in rows:
        costs = "; ".join(
            f"{p}{'*' if p in row['default'] else ''} {c['cells']} cells, {c['minutes']:.0f} min"
            for p, c in row["presets"].items()
        )
        lines.append(f"{row['id']:<4}{row['title']}: {row['question']}\n    {costs}")
    real = lazy(f"{grid}:load_experiment")(NAME)
    counts = {p: {"cells": 4 * c["seeds"], "minutes": None} for p, c in real.presets.items()}
    rows.append(
        {"id": NAME, "title": real.title, "question": real.question, "presets": counts, "default": []}
    )
    costs = "; ".join(f"{p} {c['cells']} cells" for p, c in counts.items())
    lines.append(f"{NAME:<4}{real.title}: {real.question}\n    {costs}; needs --ckpt, minutes by its size")
    lines.append(
        f"minutes: estimated here with {args.jobs} jobs, checkpoints included; * = run without naming it"
    )
    emit(args, rows, "\n".join(lines))
    return 0


def _cost(name: str, planned: Any, args: argparse.Namespace, speed: Any) -> dict[str, float]:
    minutes, starts = lazy("spade.study.runner:estimates")({name: planned}, args.out, speed, args.jobs)
    return {"cells": len({p.cell.key for p in planned}), "minutes": minutes[name] + starts}


def _add_run(sub: Any) -> Any:
    parser = sub.add_parser("run", help="run experiments; finished cells are kept, so it resumes by itself")
    parser.add_argument(
        "experiments",
        nargs="*",
        default=[],
        help="E1 ... E13, a YAML file, or R1 with --ckpt; default: the preset's",
    )
    parser.add_argument("--preset", default="quick", help="smoke, quick or full; default quick")
    parser.add_argument("--seeds", type=positive, help="instead of the preset's number")
    parser.add_argument(
        "--jobs", type=positive, default=2, help="cells side by side, one thread each; default 2"
    )
    parser.add_argument("--resume", action="store_true", help="insist on a folder that was begun")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the study; default {OUT}")
    parser.add_argument("--dry-run", action="store_true", help="print what would run, and for how long")
    parser.add_argument("--no-report", action="store_true", help="write no tables and figures at the end")
    parser.add_argument(
        "--publish", type=Path, help="at the end, copy report and records, without weights, into this folder"
    )
    add_real(parser)
    return parser, _run


def _run(args: argparse.Namespace) -> int:
    if is_real(args):
        return run_real(args)
    grid, runner = "spade.study.grid", "spade.study.runner"
    load = lazy(f"{grid}:load_experiment")
    wanted = args.experiments
    if not wanted:
        wanted = [n for n in lazy(f"{grid}:experiment_names")() if args.preset in load(n).default]
    experiments = {e.id: e for e in map(load, wanted)}
    if not experiments:
        raise InputError(f"no experiment belongs to the preset '{args.preset}'; use smoke, quick or full.")
    plans = {n: lazy(f"{grid}:plan")(e, args.preset, args.seeds) for n, e in experiments.items()}
    if args.publish is not None and not args.dry_run:
        lazy("spade.study.report:check_target")(args.publish)
    if args.resume and not (args.out / "plan.json").is_file():
        raise InputError(f"there is no study to resume in {args.out}; leave out --resume to start one.")
    cost = _announced(args, plans)
    if args.dry_run:
        emit(args, {"minutes": cost}, "nothing was run")
        return 0
    lazy(f"{runner}:write_plan")(args.out, experiments, plans, args.preset)
    cells = [p.cell for planned in plans.values() for p in planned]
    with StopFlag() as stop:
        counts = lazy(f"{runner}:run_plans")(cells, args.out, args.jobs, stop)
        interrupted = stop.requested
    if interrupted or args.no_report:
        emit(
            args,
            {"out": str(args.out), **counts},
            f"{counts['finished']} of {counts['cells']} cells in {args.out}",
        )
        return 130 if interrupted else 0
    return written(args, args.out, counts)


def _announced(args: argparse.Namespace, plans: dict[str, Any]) -> dict[str, float]:
    """Print what will run and for how long; returns minutes by experiment, and for checkpoints."""
    runner = "spade.study.runner"
    minutes, starts = lazy(f"{runner}:estimates")(
        plans, args.out, lazy(f"{runner}:measure_speed")(), args.jobs
    )
    for name, planned in plans.items():
        count = len({p.cell.key for p in planned})
        print(f"{name}: {count} cells, about {minutes[name]:.1f} min ({args.jobs} jobs)")
    cost = {**minutes, "checkpoints": starts}
    print(
        f"checkpoints to be made: about {starts:.1f} min; all: about {sum(cost.values()):.0f} min", flush=True
    )
    return cost


def written(args: argparse.Namespace, out: Path, counts: dict[str, int]) -> int:
    """Write the report of a study folder, and publish it if asked to; prints the verdicts."""
    verdicts = lazy("spade.study.report:write_study_report")(out)
    if args.publish is not None:
        counts = {**counts, "published": lazy("spade.study.report:copy_records")(out, args.publish)}
    lines = [f"{name}: {v['verdict']}" for name, v in verdicts.items()]
    emit(
        args,
        {"out": str(out), **counts, "verdicts": verdicts},
        "\n".join([*lines, f"report: {out / 'report.md'}"]),
    )
    return 0


def _add_report(sub: Any) -> Any:
    parser = sub.add_parser("report", help="tables, figures and verdicts of a study folder, or a run's lens")
    parser.add_argument("folder", nargs="?", type=Path, help=f"study folder; default {OUT}")
    parser.add_argument(
        "--run", type=Path, help="training run: draw what its lens measured into RUN/lens.png"
    )
    parser.add_argument(
        "--publish", type=Path, help="copy report and records, without weights, into this folder"
    )
    return parser, _report


def _report(args: argparse.Namespace) -> int:
    if args.run is not None:
        files = lazy("spade.study.figures:draw_lens")(args.run)
        emit(args, {"files": [str(f) for f in files]}, "\n".join(map(str, files)))
        return 0
    if args.publish is not None:
        count = lazy("spade.study.report:publish")(args.folder or OUT, args.publish)
        emit(args, {"out": str(args.publish), "cells": count}, f"{count} cells published in {args.publish}")
        return 0
    return written(args, args.folder or OUT, {})


def _add_verify(sub: Any) -> Any:
    parser = sub.add_parser("verify", help="recompute hashes, exact sums and verdicts from what is stored")
    parser.add_argument("folder", nargs="?", type=Path, default=OUT, help=f"study folder; default {OUT}")
    return parser, _verify


def _verify(args: argparse.Namespace) -> int:
    wrong = lazy("spade.study.report:verify")(args.folder)
    emit(args, {"wrong": wrong}, "\n".join(wrong) or f"{args.folder}: everything holds")
    return 1 if wrong else 0


# --- checkpoints -----------------------------------------------------------------------------------------


def _add_preflight(sub: Any) -> Any:
    parser = sub.add_parser(
        "preflight", help="will sparse reinforcement learning get a signal, and if not, what to do"
    )
    parser.add_argument(
        "--ckpt",
        required=True,
        metavar="REF",
        help="folder, run or model name; a prior such as 1e-3 = the shipped one",
    )
    parser.add_argument(
        "--task",
        required=True,
        help="rules, quote, chain, strategy, or JSON lines of prompt + targets; "
        "quote on a real model chooses R1's texts",
    )
    parser.add_argument(
        "--budget", type=positive, default=32768, help="rollouts of the whole run; default 32768"
    )
    parser.add_argument(
        "--group", type=positive, default=8, help="rollouts of one prompt at a time; default 8"
    )
    parser.add_argument("--temperature", type=float, default=1.0, help="of the rollouts; default 1")
    parser.add_argument(
        "--n", type=int, default=4, help="samples a prompt beside the exact prior, 0 = none; default 4"
    )
    add_world(parser)
    return parser, _preflight


def _preflight(args: argparse.Namespace) -> int:
    if args.task == "quote" and not lazy("spade.study.checks:is_study_model")(args.ckpt):
        return preflight_real(args)
    found = lazy("spade.study.checks:preflight_of")(
        args.ckpt, args.task, args.budget, args.group, args.temperature, args.n
    )
    emit(args, {**dataclasses.asdict(found), "advice": found.advice}, found.text())
    return 0


def _add_entropy(sub: Any) -> Any:
    parser = sub.add_parser(
        "entropy", help="entropies of checkpoints, and what changed from the first to the others"
    )
    parser.add_argument(
        "--ckpt", action="append", required=True, metavar="REF", help="a checkpoint; give it several times"
    )
    parser.add_argument("--prompts", help="study, agent, general, or a file of prompts")
    parser.add_argument("--target", help="JSON lines of prompt + targets: also their exact mass")
    parser.add_argument("--n", type=positive, default=64, help="samples a prompt; default 64")
    parser.add_argument("--max-tokens", type=positive, help="longest sample; default 4 (study) or 48")
    parser.add_argument("--temperature", type=float, default=1.0, help="of the samples; default 1")
    parser.add_argument("--seed", type=int, default=0, help="of the samples; default 0")
    parser.add_argument("--out", type=Path, help="folder for entropy.md, .csv, .png and .svg")
    return parser, _entropy


def _entropy(args: argparse.Namespace) -> int:
    table, value = lazy("spade.study.checks:entropy_of")(
        args.ckpt, args.prompts, args.target, args.n, args.max_tokens, args.temperature, args.seed, args.out
    )
    emit(args, value, table)
    return 0


def _add_prior(sub: Any) -> Any:
    parser = sub.add_parser("prior", help="exact probability of given texts, by temperature")
    parser.add_argument("--ckpt", required=True, metavar="REF", help="embedded, run, folder or model name")
    parser.add_argument(
        "--target", required=True, help="JSON lines with prompt and targets (surface variants)"
    )
    parser.add_argument("--temperature", default="1.0,0.7,0.4", metavar="X[,X]", help="default 1.0,0.7,0.4")
    return parser, _prior


def _prior(args: argparse.Namespace) -> int:
    try:
        heats = [float(t) for t in args.temperature.split(",")]
    except ValueError:
        raise InputError(f"--temperature {args.temperature} is no list of numbers, such as 1.0,0.7") from None
    rows = lazy("spade.study.checks:prior_of")(args.ckpt, args.target, heats)
    lines = [
        f"T={r['temperature']:g}  mean {r['mean']:.4g}  geometric {r['geometric']:.4g}  min {r['min']:.4g}"
        for r in rows
    ]
    emit(args, rows, "\n".join(lines))
    return 0


def _add_dial(sub: Any) -> Any:
    parser = sub.add_parser(
        "dial", help="set the prior mass of a task's wanted behaviour in a model of the study"
    )
    parser.add_argument(
        "--ckpt", required=True, metavar="REF", help="folder of a study model; `trunk` = the shipped one"
    )
    parser.add_argument("--task", default="rules", help="rules, quote, chain or strategy; default rules")
    parser.add_argument("--rho", type=float, required=True, help="mass (hinge), share (mix) or steps (raw)")
    parser.add_argument("--method", choices=("hinge", "mix", "raw"), default="hinge", help="default hinge")
    parser.add_argument("--seed", type=int, default=0, help="of the training; default 0")
    parser.add_argument("--out", type=Path, required=True, help="new folder")
    return parser, _dial


def _dial(args: argparse.Namespace) -> int:
    measured = lazy("spade.study.checks:dial_to")(
        args.ckpt, args.task, args.rho, args.method, args.seed, args.out
    )
    emit(args, {"out": str(args.out), **measured}, f"{args.out}: {json.dumps(measured)}")
    return 0
