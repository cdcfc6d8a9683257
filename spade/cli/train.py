"""`spade train`: config -> run folder -> training loop -> evaluation that belongs to the run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spade import registry
from spade.cli.evaluate import describe, evaluate, suite_names
from spade.cli.inloop import check_in_loop, in_loop
from spade.cli.launch import launch
from spade.cli.main import add_json, emit, lazy, positive
from spade.cli.rivals import compare_with_rivals, make_missing, missing_text, start_weights
from spade.config import Config
from spade.config_load import config_digest, dump_yaml, load_config
from spade.errors import ConfigError, InputError, InterruptedRun
from spade.interrupt import StopFlag
from spade.learn.ranks import world
from spade.machine import require_device
from spade.runs import RunFolder, read_record

CHECKPOINTS = "checkpoints"
LEDGER_KEYS = {"total_tokens": "total_tokens", "train_tokens": "tokens_trained", "train_plays": "plays_plain"}
"""What `budget.match` makes equal, and the ledger's word for it."""


def add_train(parser: argparse.ArgumentParser) -> None:
    """Arguments of `spade train`."""
    parser.add_argument("config", help="name of a shipped config, or a YAML file")
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],
        metavar="key=value",
        help="values over the config's, such as seed=1",
    )
    parser.add_argument(
        "--resume", action="store_true", help="insist on an existing run (it is resumed anyway)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything, print the resolved config, stop"
    )
    parser.add_argument(
        "--with-baselines",
        action="store_true",
        help="then evaluate the start model, train the baselines at equal budget, and compare",
    )
    parser.add_argument(
        "--launch", type=positive, metavar="N", help="train with N processes of this machine (docs/scale.md)"
    )
    add_json(parser)
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Check, open the run folder, train, evaluate, summarise."""
    if args.launch and not args.dry_run:
        return launch(args.command, args.launch)
    cfg = with_budget(load_config(args.config, args.overrides))
    check(cfg)
    if args.dry_run:
        folder = cfg.out or f"runs/{cfg.name}-s{cfg.seed}"
        head = f"# run folder: {folder}\n# digest: {config_digest(cfg)}\n"
        value = {"config": cfg.model_dump(mode="json"), "digest": config_digest(cfg), "out": folder}
        emit(args, value, head + dump_yaml(cfg).rstrip())
        return 0
    rank, processes = world()
    if processes > 1 and args.with_baselines:
        raise InputError("--with-baselines trains run after run; start each with a command of its own")
    if rank:
        return int(lazy("spade.train.follow:follow")(cfg))
    run_training = lazy("spade.train.loop:run_training")
    if args.with_baselines:
        cfg = cfg.model_copy(update={"eval": cfg.eval.model_copy(update={"at_end": True})})
    opened = RunFolder.create_or_resume(cfg, "train", args.command, resume=args.resume or None)
    summary, status = train(cfg, opened, run_training)
    summary = {"run": str(opened.path), "status": status, **summary}
    if args.with_baselines and status == "finished":
        make_missing(cfg, opened.path, _trains(run_training))
    if status == "finished" and cfg.eval.compare and cfg.eval.at_end:
        summary |= _comparison(cfg, opened.path)
    shown = {key: _short(value) for key, value in summary.items()}
    emit(args, summary, "\n".join(f"{key}: {text}" for key, text in shown.items() if text))
    return 130 if status == "interrupted" else 0


def _comparison(cfg: Config, run: Path) -> dict[str, Any]:
    """The run beside its rivals, and what is missing of them; a run that cannot be compared says why."""
    try:
        report, missing = compare_with_rivals(cfg, run)
    except InputError as error:
        return {"comparison": f"none: {error}"}
    return {"comparison": report, "missing": missing_text(missing)}


def _trains(run_training: Callable[..., Any]) -> Callable[[Config, str], Path]:
    """Trains one baseline to its end. Raises InterruptedRun when it was stopped."""

    def one(cfg: Config, command: str) -> Path:
        cfg = with_budget(cfg)
        check(cfg)
        folder = RunFolder.create_or_resume(cfg, "train", command)
        _, status = train(cfg, folder, run_training)
        if status != "finished":
            raise InterruptedRun(f"{folder.path} was stopped; the same command goes on")
        return folder.path

    return one


def train(cfg: Config, folder: RunFolder, run_training: Callable[..., Any]) -> tuple[dict[str, Any], str]:
    """Run the loop in an open folder; whatever happens, the record ends with a true status."""
    status = "failed"
    folder.update_record(data={**folder.record.data, "model": start_weights(cfg.model)})
    try:
        with StopFlag() as stop:
            look = in_loop(cfg, folder.path)
            more = {} if look is None else {"on_checkpoint": look}
            summary = dict(run_training(cfg, folder, stop, **more) or {})
            if not stop.requested:
                summary |= _evaluations(cfg, folder)
            status = "interrupted" if stop.requested else "finished"
    except (KeyboardInterrupt, InterruptedRun):
        status = "interrupted"
        raise
    finally:
        folder.finish(status)
    return summary, status


def check(cfg: Config) -> None:
    """Find what would fail later: source name, device, start checkpoint. Raises ConfigError or InputError."""
    source = registry.resolve("source", cfg.train.source)
    registry.target("backend", cfg.serving.type)
    require_device(cfg.serving.device)
    if cfg.eval.at_end:
        suite_names(cfg.eval.suite)
    check_in_loop(cfg)
    lazy("spade.serving.launch:resolve_ref")(cfg.model)
    lazy("spade.train.checks:check_run")(cfg)
    getattr(source, "check", lambda cfg: None)(cfg)


def with_budget(cfg: Config) -> Config:
    """Replace `budget.like` by what that run spent, so that the digest holds the number itself.

    A fixed pool that is not made yet gets as many programs as that run accepted.
    """
    if cfg.budget.like is None:
        return cfg
    ledger, match = read_record(cfg.budget.like).ledger, cfg.budget.match
    key = LEDGER_KEYS[match]
    amount, programs = ledger.get(key), int(ledger.get("accepted", 0))
    if not amount:
        raise ConfigError(
            f"budget.like: the run {cfg.budget.like} has no count of {key} yet; let it finish first"
        )
    limits = {name: int(amount) if name == match else None for name in LEDGER_KEYS}
    changes: dict[str, Any] = {"budget": cfg.budget.model_copy(update={**limits, "like": None})}
    if programs and cfg.train.source == "fixed_pool" and cfg.train.pool is None:
        changes["train"] = cfg.train.model_copy(update={"pool_size": programs})
    return cfg.model_copy(update=changes)


def _evaluations(cfg: Config, folder: RunFolder) -> dict[str, Any]:
    """Evaluate the last checkpoint, if `eval.at_end` asks for it; returns the result by checkpoint."""
    if not cfg.eval.at_end:
        return {}
    ref, suite, seed, limit = str(folder.path), cfg.eval.suite, cfg.eval.seed, cfg.eval.episodes
    return {f"eval {ref}": evaluate(cfg, ref, suite, seed=seed, limit=limit)}


def _short(value: Any) -> str:
    if hasattr(value, "parts"):  # the result of a suite
        return describe(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
