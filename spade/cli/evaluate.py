"""`spade eval`: one checkpoint, one suite or several, one result folder."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from spade import registry
from spade.cli.data import split_root
from spade.cli.main import add_json, emit, lazy, positive
from spade.config import Config, PlayConfig
from spade.config_load import config_from_dict, with_overrides
from spade.errors import ConfigError, FaultKind
from spade.machine import require_device
from spade.runs import RECORD, read_record

ALL = ("math", "science", "code", "reasoning", "bfcl", "acebench", "games")
"""What `--suite all` stands for."""

HARNESS = "lm-eval:"
"""Begins the list of tasks of lm-evaluation-harness; the last suite of a command."""


def add_eval(parser: argparse.ArgumentParser) -> None:
    """Arguments of `spade eval`."""
    parser.add_argument(
        "--ckpt", required=True, metavar="REF", help="embedded, RUN, RUN@STEP, folder or model name"
    )
    parser.add_argument(
        "--suite",
        default="heldout",
        help="suite name (spade list suites), FILE.py:Suite, lm-eval:TASK[,TASK], several with commas, "
        "or all; default heldout",
    )
    parser.add_argument(
        "--limit", type=positive, help="evaluate only this many items (of each task, in a suite of tasks)"
    )
    parser.add_argument(
        "--out", type=Path, help="result folder; default RUN/eval, else runs/eval-<checkpoint>"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of items and sampling; keep it equal across checkpoints; default 0",
    )
    parser.add_argument(
        "--pool", type=Path, metavar="DIR", help="for the suite games: the programs of this folder or pool"
    )
    _add_tasks(parser.add_argument_group("suites of tasks"))
    _add_harness(parser.add_argument_group("tasks of lm-evaluation-harness (lm-eval:TASK)"))
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],
        metavar="key=value",
        help="such as serving.device=cpu or data.root=PATH",
    )
    add_json(parser)
    parser.set_defaults(handler=run)


def _add_tasks(group: Any) -> None:
    group.add_argument(
        "--preset", help="prompts, samples and limits: paper, paper-offline, smoke, or a YAML file"
    )
    group.add_argument("--samples", type=positive, help="samples per question, instead of the preset's")
    group.add_argument(
        "--user",
        default="",
        metavar="REF",
        help="who plays the user in conversations: a model, or scripted:user",
    )
    group.add_argument("--regrade", action="store_true", help="grade stored answers again; generate nothing")
    group.add_argument(
        "--allow-missing", action="store_true", help="exit 0, and average, without tasks whose data is absent"
    )
    group.add_argument(
        "--allow-changed-data", action="store_true", help="take data files that are not the pinned ones"
    )


def _add_harness(group: Any) -> None:
    group.add_argument("--include-path", type=Path, metavar="DIR", help="folder of further task definitions")
    group.add_argument(
        "--num-fewshot", type=int, metavar="N", help="examples in the prompt, instead of the tasks' own"
    )
    group.add_argument(
        "--apply-chat-template", action="store_true", help="ask in conversations; default is plain text"
    )


def run(args: argparse.Namespace) -> int:
    """Check the names first, then evaluate and print the score with its standard error.

    Exit code 1 when samples or tasks are missing.
    """
    names = suite_names(args.suite)
    data_root, overrides = split_root(args.overrides)
    cfg = with_overrides(config_of(args.ckpt), overrides)
    registry.target("backend", cfg.serving.type)
    require_device(cfg.serving.device)
    # Play settings are part of the protocol: the defaults for every checkpoint, whatever it was trained with.
    wanted = [o for o in overrides if o.startswith("play.")]
    play = with_overrides(config_from_dict({"name": "eval"}, "spade eval"), wanted).play
    more = {"seed": args.seed, "limit": args.limit, "out": args.out, "play": play}
    if _of_tasks(args, data_root) or len(names) > 1:
        more["options"] = _options(args, data_root)
    harness = _harness(args)
    if names[-1].startswith(HARNESS):
        if len(names) == 1 and "options" in more:
            raise ConfigError(f"{names[0]}: the harness' tasks bring prompts, samples and data of their own")
        more["harness"] = harness
    elif harness != type(harness)():
        raise ConfigError(
            "--include-path, --num-fewshot and --apply-chat-template go with --suite lm-eval:TASK"
        )
    if args.pool is not None:
        more["pool"] = args.pool
    if len(names) == 1:
        result = evaluate(cfg, args.ckpt, names[0], **more)
    else:
        result = evaluate_all(cfg, args.ckpt, names, **more)
    emit(args, result, describe(result))
    return 0 if succeeded(result) else 1


def suite_names(text: str) -> list[str]:
    """The suites behind `--suite`. Raises ConfigError for a name nobody has; `all` may name absent ones."""
    text, harness, tasks = text.partition(HARNESS)
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    names += [HARNESS + tasks] if harness else []
    if names == ["all"]:
        return list(ALL)
    if not names:
        raise ConfigError("--suite names no suite; spade list suites shows them")
    for name in names:
        registry.target("suite", name)
    return names


def _harness(args: argparse.Namespace) -> Any:
    options = lazy("spade_evals.harness.options:HarnessOptions")
    return options(args.include_path, args.num_fewshot, args.apply_chat_template)


def _of_tasks(args: argparse.Namespace, root: Path | None) -> bool:
    given = (
        args.preset,
        args.samples,
        args.user,
        args.regrade,
        args.allow_missing,
        args.allow_changed_data,
        root,
    )
    return any(value not in (None, False, "") for value in given)


def _options(args: argparse.Namespace, root: Path | None) -> Any:
    options = lazy("spade_evals.question_run:Options")
    return options(
        preset=args.preset,
        samples=args.samples,
        data_root=root,
        allow_missing=args.allow_missing,
        allow_changed=args.allow_changed_data,
        regrade=args.regrade,
        user=args.user,
    )


def evaluate(
    cfg: Config,
    ref: str,
    suite: str,
    *,
    seed: int = 0,
    limit: int | None = None,
    out: Path | None = None,
    play: PlayConfig | None = None,
    options: Any = None,
    **more: Any,
) -> Any:
    """Run a suite on a checkpoint; returns its `SuiteResult`, or the `SuiteReport` of a suite of tasks.

    Raises InputError for an unknown checkpoint.
    """
    lazy("spade.serving.launch:resolve_ref")(ref)
    run_eval = lazy("spade_evals.runner:run_eval")
    more |= {} if options is None else {"options": options}
    return run_eval(
        ref,
        suite,
        out or default_out(ref),
        seed=seed,
        limit=limit,
        serving=cfg.serving,
        sandbox=cfg.sandbox,
        play=play,
        **more,
    )


def evaluate_all(cfg: Config, ref: str, suites: list[str], *, out: Path | None = None, **more: Any) -> Any:
    """Several suites on a checkpoint that is opened once; returns a `ListReport`."""
    lazy("spade.serving.launch:resolve_ref")(ref)
    run_suites = lazy("spade_evals.runner:run_suites")
    folder = out or default_out(ref)
    return run_suites(ref, suites, folder, serving=cfg.serving, sandbox=cfg.sandbox, **more)


def succeeded(result: Any) -> bool:
    """Whether nothing is missing: no task, no sample, no item lost to the machinery."""
    if hasattr(result, "ok"):
        return bool(result.ok)
    return not result.faults.get(FaultKind.INFRASTRUCTURE.value)


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
    """Score, parts, faults and tokens of a `SuiteResult`, one line each; other reports print themselves."""
    if hasattr(result, "ok"):
        return str(result)
    rows = [("all", result.score), *result.parts.items()]
    width = max(len(name) for name, _ in rows)
    lines = [f"{result.suite} on {result.checkpoint}"]
    lines += [f"  {name:<{width}}  {_score(*score)}" for name, score in rows]
    faults = ", ".join(f"{kind} {count}" for kind, count in result.faults.items() if count) or "none"
    return "\n".join([*lines, f"  faults: {faults}; sampled tokens: {result.tokens:,}"])


def known(value: float | None) -> bool:
    """Whether a number is there: the error of items of one program is None or NaN."""
    return value is not None and value == value


def _score(mean: float | None, stderr: float | None, count: int) -> str:
    if mean is None:
        return f"no score (n = {count})"
    return f"{mean:.3f}" + (f" ± {stderr:.3f}" if known(stderr) else "") + f" (n = {count})"
