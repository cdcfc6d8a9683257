"""`spade study run R1`: the study on a real checkpoint; and the preflight that chooses its targets."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spade.cli.main import emit, lazy, positive
from spade.errors import InputError
from spade.interrupt import StopFlag

NAME = "R1"
RUN, CELLS, PLAN = "spade.study.real_run", "spade.study.real_cells", "spade.study.real"
OVERRIDES = ("steps", "rollouts", "group", "lr", "temperature", "lens")


def add_world(parser: Any) -> None:
    """Options that say what a real checkpoint is asked."""
    parser.add_argument(
        "--quotes", type=Path, help="R1: file of candidate texts, one a line; default: shipped"
    )
    parser.add_argument("--prompt", help="R1: what the model goes on from; default: a list of old sayings")
    parser.add_argument("--chat", action="store_true", help="R1: put the prompt through the chat template")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="R1; default auto")


def add_real(parser: Any) -> None:
    """Options of `spade study run` that belong to R1 alone."""
    group = parser.add_argument_group("R1, real models (all weights are trained, in full precision)")
    group.add_argument("--ckpt", metavar="REF", help="folder, run or model name")
    add_world(group)
    group.add_argument("--steps", type=positive, help="default 128")
    group.add_argument("--rollouts", type=positive, help="responses a step; default 32")
    group.add_argument(
        "--group", type=positive, help="responses compared with each other; default all of a step"
    )
    group.add_argument("--lr", type=float, help="learning rate; default 2e-5")
    group.add_argument("--temperature", type=float, help="of the rollouts; default 1")
    group.add_argument("--lens", type=positive, help="responses of a step that are measured; default 16")
    group.add_argument("--threads", type=positive, default=1, help="torch threads; default 1")
    group.add_argument(
        "--keep-weights", action="store_true", help="write the weights at the end of each cell"
    )


def is_real(args: argparse.Namespace) -> bool:
    """Whether R1 is what is asked for. Raises `InputError` for a mixture, or options of R1 without it."""
    wanted = [name.upper() for name in args.experiments]
    if NAME not in wanted:
        for option in ("ckpt", "quotes", "prompt", *OVERRIDES):
            if getattr(args, option) is not None:
                raise InputError(f"--{option} belongs to R1: spade study run R1 --ckpt REF")
        return False
    if set(wanted) != {NAME}:
        raise InputError("R1 runs by itself; leave the other experiments to a command of their own.")
    if args.ckpt is None:
        raise InputError("R1 needs a checkpoint: spade study run R1 --ckpt REF")
    return True


def surveyed(args: argparse.Namespace, rollouts: int) -> tuple[Any, str]:
    """Open the checkpoint and choose the targets; returns them, also in words."""
    heat = 1.0 if args.temperature is None else args.temperature
    lazy("spade.study.checks:check_temperature")(heat)
    quotes = lazy("spade.study.quotes:read_quotes")(args.quotes)
    opened = lazy("spade.study.hf:open_checkpoint")(args.ckpt, args.device)
    world = lazy(f"{RUN}:survey")(opened, quotes, args.prompt, args.chat, heat)
    return world, world.text(rollouts)


def run_real(args: argparse.Namespace) -> int:
    """`spade study run R1 --ckpt REF`."""
    experiment = lazy("spade.study.grid:load_experiment")(NAME)
    given = {name: value for name in OVERRIDES if (value := getattr(args, name)) is not None}
    _check(args, experiment, given)
    steps, rollouts = (given.get(name, experiment.settings[name]) for name in ("steps", "rollouts"))
    world, text = surveyed(args, steps * rollouts)
    targets = {name: found.text for name, found in world.targets.items()}
    planned = lazy(f"{PLAN}:plan_real")(experiment, args.preset, world.settings(), targets, given, args.seeds)
    cells = [p.cell for p in planned]
    todo = [c for c in cells if not lazy("spade.study.settings:finished")(args.out / "cells" / c.key)]
    minutes = lazy(f"{RUN}:seconds_of")(world, todo, args.device, args.threads) / 60
    print(
        f"{text}\n{NAME}: {len(cells)} cells, at most about {minutes:.1f} min, one after another", flush=True
    )
    if args.dry_run:
        emit(args, {"minutes": {NAME: minutes}, "targets": targets}, "nothing was run")
        return 0
    lazy("spade.study.runner:write_plan")(args.out, {NAME: experiment}, {NAME: planned}, args.preset)
    means = lazy(f"{CELLS}:Means")(args.device, args.threads, args.keep_weights)
    with StopFlag() as stop:
        counts = lazy(f"{CELLS}:run_real_cells")(world, cells, args.out, means, stop)
        interrupted = stop.requested
    if interrupted or args.no_report:
        text = f"{counts['finished']} of {counts['cells']} cells in {args.out}"
        emit(args, {"out": str(args.out), **counts}, text)
        return 130 if interrupted else 0
    written: int = lazy("spade.cli.study:written")(args, args.out, counts)
    return written


def _check(args: argparse.Namespace, experiment: Any, given: dict[str, Any]) -> None:
    """Find what would fail, before a model is loaded."""
    if not given.get("lr", 0.0) >= 0:
        raise InputError(f"a learning rate of {given['lr']:g} cannot be used; give 0 or more.")
    nothing = {"model": "", "weights": "", "prompt": "", "chat": False}
    texts = dict.fromkeys(experiment.factors["prior"], "")
    lazy(f"{PLAN}:plan_real")(experiment, args.preset, nothing, texts, given, args.seeds)
    if args.publish is not None and not args.dry_run:
        lazy("spade.study.report:check_target")(args.publish)
    if args.resume and not (args.out / "plan.json").is_file():
        raise InputError(f"there is no study to resume in {args.out}; leave out --resume to start one.")


def preflight_real(args: argparse.Namespace) -> int:
    """`spade study preflight --task quote` on a checkpoint that is none of the study's: the targets of R1."""
    world, text = surveyed(args, args.budget)
    mass = {name: found.prior for name, found in world.targets.items()}
    value = {
        "prompt": world.prompt,
        "targets": {
            n: {"text": c.text, "tokens": len(c.ids), "p0": c.prior} for n, c in world.targets.items()
        },
        "lambda": {name: p * args.budget for name, p in mass.items()},
        "candidates": world.candidates,
    }
    emit(args, value, text)
    return 0
