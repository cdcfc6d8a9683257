"""`spade data`: what benchmark data the tasks need, getting it, and making what is generated."""

from __future__ import annotations

import argparse
from pathlib import Path

from spade.cli.main import add_json, emit, lazy, positive
from spade.errors import ConfigError

ROOT = "data.root="

GENERATORS = {"reasoning-gym-hard": "spade_evals.tasks.reasoning:generate_items"}


def add_data(parser: argparse.ArgumentParser) -> None:
    """Arguments of `spade data list|get|generate`."""
    sub = parser.add_subparsers(dest="action", required=True, metavar="list|get|generate")
    shown = sub.add_parser("list", help="list all tasks: size, licence, source, whether the data is present")
    get = sub.add_parser("get", help="fetch the pinned data of a task or a suite")
    get.add_argument("task", help="name of a task or a suite, such as gsm8k")
    get.add_argument("--force", action="store_true", help="fetch again what is there")
    for child, handler in ((shown, _list), (get, _get)):
        child.add_argument(
            "where",
            nargs="*",
            default=[],
            metavar="data.root=PATH",
            help="default $SPADE_DATA, else ~/.cache/spade/data",
        )
        add_json(child)
        child.set_defaults(handler=handler)
    make = sub.add_parser("generate", help="make items with a generator, to be frozen in a file")
    make.add_argument("name", help="what to make", choices=sorted(GENERATORS))
    make.add_argument("--out", type=Path, help="data root; default $SPADE_DATA, else ~/.cache/spade/data")
    make.add_argument("--per-task", type=positive, default=8, help="items of each task; default 8")
    make.add_argument("--seed", type=int, default=42, help="of the items; default 42")
    add_json(make)
    make.set_defaults(handler=_generate)


def split_root(words: list[str]) -> tuple[Path | None, list[str]]:
    """The folder of `data.root=PATH` among key=value words, and the other words."""
    roots = [word.removeprefix(ROOT) for word in words if word.startswith(ROOT)]
    rest = [word for word in words if not word.startswith(ROOT)]
    return (Path(roots[-1]).expanduser() if roots and roots[-1] else None), rest


def _root(args: argparse.Namespace) -> Path | None:
    root, rest = split_root(args.where)
    if rest:
        raise ConfigError(f"'{rest[0]}' means nothing here; the one setting is data.root=PATH")
    return root


def _list(args: argparse.Namespace) -> int:
    found = lazy("spade_evals.catalogue:catalogue")(_root(args))
    tasks = {task.name: task for suite in found.suites for task in suite.tasks}
    lines = lazy("spade_evals.catalogue:task_lines")([tasks[name] for name in sorted(tasks)])
    text = "\n".join([*lines, f"data root: {found.root}"])
    emit(args, {"root": found.root, "tasks": list(tasks.values())}, text)
    return 0


def _get(args: argparse.Namespace) -> int:
    paths = lazy("spade_evals.catalogue:fetch")(args.task, _root(args), args.force)
    emit(args, {"files": [str(path) for path in paths]}, "\n".join(map(str, paths)))
    return 0


def _generate(args: argparse.Namespace) -> int:
    root = args.out or lazy("spade_evals.data:data_root")()
    path = lazy(GENERATORS[args.name])(root, per_task=args.per_task, seed=args.seed)
    emit(args, {"files": [str(path)]}, str(path))
    return 0
