"""`spade config`, `spade list`, `spade run`: looking at things without starting any."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from spade import registry
from spade.cli.main import add_json, emit, lazy
from spade.config_load import (
    config_digest,
    config_from_dict,
    config_names,
    diff_configs,
    dump_yaml,
    json_schema,
    load_config,
)
from spade.errors import ConfigError
from spade.files import path_inside, read_jsonl
from spade.runs import METRICS, RECORD, publish_record, read_record


def add_config(parser: argparse.ArgumentParser) -> None:
    """Arguments of `spade config show|diff|schema`."""
    sub = parser.add_subparsers(dest="action", required=True, metavar="show|diff|schema")
    show = sub.add_parser("show", help="print a config with everything resolved")
    show.add_argument("config", help="shipped name, YAML file or run folder")
    show.add_argument(
        "overrides", nargs="*", default=[], metavar="key=value", help="values over the config's"
    )
    diff = sub.add_parser("diff", help="print the keys in which two configs or runs differ")
    diff.add_argument("left", help="shipped name, YAML file or run folder")
    diff.add_argument("right", help="shipped name, YAML file or run folder")
    schema = sub.add_parser("schema", help="print the JSON schema, with the meaning of every key")
    for child, handler in ((show, _show), (diff, _diff), (schema, _schema)):
        add_json(child)
        child.set_defaults(handler=handler)


def add_list(parser: argparse.ArgumentParser) -> None:
    """Arguments of `spade list`."""
    kinds = [*(f"{kind}s" for kind in registry.KINDS), "configs"]
    parser.add_argument("kind", metavar="|".join(kinds), help="what to list")
    add_json(parser)
    parser.set_defaults(handler=_list)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Arguments of `spade run show|publish`."""
    sub = parser.add_subparsers(dest="action", required=True, metavar="show|publish")
    show = sub.add_parser("show", help="summarise a run: where it came from and how far it is")
    publish = sub.add_parser("publish", help="copy a run's record to RESULTS/records")
    for child, handler in ((show, _run_show), (publish, _run_publish)):
        child.add_argument("run", help="run folder")
        add_json(child)
        child.set_defaults(handler=handler)
    publish.add_argument("--results", default="results", help="results folder; default results")
    publish.add_argument(
        "--set", metavar="NAME", help="also copy what comparisons need to RESULTS/runs/NAME/RUN"
    )


def _load(name: str, overrides: list[str]) -> Any:
    if (Path(name) / RECORD).is_file():
        if overrides:
            raise ConfigError(f"{name} is a run folder, whose config is fixed; leave out {overrides[0]}")
        return config_from_dict(read_record(name).config, name)
    return load_config(name, overrides)


def _show(args: argparse.Namespace) -> int:
    cfg = _load(args.config, args.overrides)
    digest = config_digest(cfg)
    value = {"config": cfg.model_dump(mode="json"), "digest": digest}
    emit(args, value, f"# digest: {digest}\n{dump_yaml(cfg).rstrip()}")
    return 0


def _diff(args: argparse.Namespace) -> int:
    found = diff_configs(_load(args.left, []), _load(args.right, []))
    rows = [row for row in found if row[0] != "name"]  # two files are never called the same
    text = "\n".join(f"{key}: {left!r} -> {right!r}" for key, left, right in rows)
    value = [{"key": key, "left": left, "right": right} for key, left, right in rows]
    emit(args, value, text or "no difference")
    return 0


def _schema(args: argparse.Namespace) -> int:
    value = json_schema()
    emit(args, value, json.dumps(value, indent=2))
    return 0


def _list(args: argparse.Namespace) -> int:
    if args.kind == "configs":
        emit(args, config_names(), "\n".join(config_names()))
        return 0
    kind = args.kind.removesuffix("s")
    if kind not in registry.KINDS:
        options = [*(f"{k}s" for k in registry.KINDS), "configs"]
        raise ConfigError(f"cannot list '{args.kind}'{registry.suggestion(args.kind, options)}")
    if kind == "suite":
        found = lazy("spade_evals.catalogue:catalogue")()
        emit(args, found, str(found))
        return 0
    built_in = lazy("spade.envs.battery:STAGES") if kind == "stage" else {}
    rows = {name: f"{stage.__module__}:{stage.__name__}" for name, stage in built_in.items()}
    rows |= {name: registry.target(kind, name) for name in registry.names(kind)}
    width = max(map(len, rows), default=0)
    text = "\n".join(f"{name:<{width}}  {where}" for name, where in rows.items())
    emit(args, rows, text or f"no {args.kind} registered")
    return 0


def _run_show(args: argparse.Namespace) -> int:
    from spade.report.summary import run_text, time_split, trend, verdicts

    record = read_record(args.run)
    rows = read_jsonl(Path(args.run) / METRICS)
    checkpoints = sorted(p.name for p in (Path(args.run) / "checkpoints").glob("step-*"))
    value = {
        "record": record,
        "steps": len(rows),
        "last": rows[-1] if rows else {},
        "trend": trend(rows),
        "designs": verdicts(rows),
        "time": time_split(rows),
        "checkpoints": checkpoints,
    }
    emit(args, value, run_text(record, rows, checkpoints))
    return 0


def _run_publish(args: argparse.Namespace) -> int:
    files = []
    if (Path(args.run) / RECORD).is_file() or args.set is None:  # a folder with an evaluation has no record
        files.append(publish_record(args.run, args.results))
    if args.set is not None:
        run = Path(args.run)
        name = path_inside(Path(args.results) / "runs" / args.set, run.resolve().name)
        files += lazy("spade.cli.publish:publish_set")(run, name)
    emit(args, {"files": [str(path) for path in files]}, "\n".join(map(str, files)))
    return 0
