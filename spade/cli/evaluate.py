"""`spade eval`: one checkpoint, one suite, one result folder."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from spade import registry
from spade.cli.main import add_json, emit, lazy, positive
from spade.config import Config, PlayConfig
from spade.config_load import config_from_dict, with_overrides
from spade.machine import require_device
from spade.runs import RECORD, read_record


def add_eval(parser: argparse.ArgumentParser) -> bool:
    """Arguments of `spade eval`."""
    parser.add_argument(
        "--ckpt", required=True, metavar="REF", help="embedded, RUN, RUN@STEP, folder or model name"
    )
    parser.add_argument("--suite", default="heldout", help="suite name (spade list suites); default heldout")
    parser.add_argument("--limit", type=positive, help="evaluate only this many items")
    parser.add_argument(
        "--out", type=Path, help="result folder; default RUN/eval, else runs/eval-<checkpoint>"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of items and sampling; keep it equal across checkpoints; default 0",
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="such as serving.device=cpu")
    add_json(parser)
    parser.set_defaults(handler=run)
    return False


def run(args: argparse.Namespace) -> int:
    """Check the names first, then evaluate and print the score with its standard error."""
    registry.target("suite", args.suite)
    cfg = with_overrides(config_of(args.ckpt), args.overrides)
    registry.target("backend", cfg.serving.type)
    require_device(cfg.serving.device)
    # Play settings are part of the protocol: the defaults for every checkpoint, whatever it was trained with.
    wanted = [o for o in args.overrides if o.startswith("play.")]
    play = with_overrides(config_from_dict({"name": "eval"}, "spade eval"), wanted).play
    result = evaluate(cfg, args.ckpt, args.suite, seed=args.seed, limit=args.limit, out=args.out, play=play)
    emit(args, result, describe(result))
    return 0


def evaluate(
    cfg: Config,
    ref: str,
    suite: str,
    *,
    seed: int = 0,
    limit: int | None = None,
    out: Path | None = None,
    play: PlayConfig | None = None,
) -> Any:
    """Run a suite on a checkpoint; returns its `SuiteResult`. InputError for an unknown checkpoint."""
    lazy("spade.serving.launch:resolve_ref")(ref)
    run_eval = lazy("spade_evals.runner:run_eval")
    folder = out or default_out(ref)
    return run_eval(
        ref, suite, folder, seed=seed, limit=limit, serving=cfg.serving, sandbox=cfg.sandbox, play=play
    )


def config_of(ref: str) -> Config:
    """The configuration of the run a checkpoint belongs to, or the defaults."""
    folder = Path(ref.partition("@")[0])
    if (folder / RECORD).is_file():
        return config_from_dict(read_record(folder).config, str(folder))
    return Config(name="eval")


def default_out(ref: str) -> Path:
    """`RUN/eval` for a run folder, else `runs/eval-<checkpoint>`."""
    base, _, step = ref.partition("@")
    if (Path(base) / RECORD).is_file():
        return Path(base) / ("eval" if not step else f"eval-{step}")
    return Path("runs") / f"eval-{re.sub(r'[^A-Za-z0-9._-]+', '-', ref).strip('-.')}"


def describe(result: Any) -> str:
    """Score, parts, faults and tokens of a `SuiteResult`, one line each."""
    rows = [("all", result.score), *result.parts.items()]
    width = max(len(name) for name, _ in rows)
    lines = [f"{result.suite} on {result.checkpoint}"]
    lines += [f"  {name:<{width}}  {_score(*score)}" for name, score in rows]
    faults = ", ".join(f"{kind} {count}" for kind, count in result.faults.items() if count) or "none"
    return "\n".join([*lines, f"  faults: {faults}; sampled tokens: {result.tokens:,}"])


def _score(mean: float | None, stderr: float | None, count: int) -> str:
    if mean is None:
        return f"no score (n = {count})"
    return f"{mean:.3f}" + (f" ± {stderr:.3f}" if stderr is not None else "") + f" (n = {count})"
