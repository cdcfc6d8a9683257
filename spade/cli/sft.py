"""`spade sft`: a warm start for `spade train`, from chats, programs or finished plays."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spade.cli.main import add_json, emit, lazy, positive
from spade.errors import InputError
from spade.files import file_sha256
from spade.interrupt import StopFlag


def add_sft(parser: argparse.ArgumentParser) -> None:
    """Arguments of `spade sft`."""
    parser.add_argument(
        "data", nargs="+", help="JSON lines with messages, a pool of programs, or a run folder"
    )
    parser.add_argument(
        "--model", required=True, metavar="REF", help="start checkpoint, as in model= of a config"
    )
    parser.add_argument("--out", required=True, type=Path, help="folder of the new model")
    parser.add_argument(
        "--roles", default="agent,designer", help="of pools and runs: agent, designer; default both"
    )
    parser.add_argument("--min-return", type=float, default=1.0, help="lowest return of a play; default 1")
    parser.add_argument(
        "--template",
        choices=("auto", "short", "full"),
        default="auto",
        help="length of the prompts; default auto",
    )
    parser.add_argument("--corpus", default="builtin", help="documents of the briefs, as in design.corpus")
    parser.add_argument("--max-tokens", type=positive, default=None, help="longest row; longer ones are cut")
    parser.add_argument("--epochs", type=float, default=1.0, help="passes over the rows; default 1")
    parser.add_argument("--lr", type=float, default=1e-4, help="learning rate; default 1e-4")
    parser.add_argument("--batch", type=positive, default=16, help="rows of an optimiser step; default 16")
    parser.add_argument("--micro-batch", type=positive, default=4, help="rows of a forward pass; default 4")
    parser.add_argument(
        "--lora-rank", type=int, default=0, help="train LoRA adapters of this rank and merge them"
    )
    parser.add_argument(
        "--save-every", type=positive, default=50, help="steps between checkpoints; default 50"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order of rows; default 0")
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto takes a GPU when there is one"
    )
    parser.add_argument("--threads", type=positive, default=1, help="torch threads; default 1")
    add_json(parser)
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Read, render, train."""
    from spade.design.prompts import choose_template
    from spade.learn.ranks import world
    from spade.serving.launch import resolve_ref
    from spade.serving.render import Renderer
    from spade.sft.data import ROLES, Choice, read_source
    from spade.sft.rows import cut, rows_of

    train = lazy("spade.sft.train:fine_tune")
    roles = tuple(args.roles.split(","))
    if unknown := [r for r in roles if r not in ROLES]:
        raise InputError(f"--roles: '{unknown[0]}' is neither agent nor designer")
    model = resolve_ref(args.model).path
    if model is None:
        raise InputError(f"the model '{args.model}' has no weights to train; use a checkpoint or 'embedded'")
    context = _context(model)
    choice = Choice(roles, args.min_return, choose_template(args.template, context), args.corpus)
    sources = [Path(name) for name in args.data]
    talks = [talk for path in sources for talk in read_source(path, choice)]
    renderer = Renderer.from_folder(model)
    limit = min(args.max_tokens or context, context)
    whole = [row for talk in talks for row in rows_of(renderer, talk)]
    rows = [row for row in (cut(row, limit) for row in whole) if row is not None]
    if not rows:
        raise InputError(f"no reply is left within {limit} tokens; raise --max-tokens")
    record: dict[str, Any] = {
        "model": str(args.model),
        "data": {str(path): file_sha256(path) if path.is_file() else "folder" for path in sources},
        "choice": {"roles": list(roles), "min_return": args.min_return, "template": choice.template},
        "max_tokens": limit,
    }
    with StopFlag() as stop:
        summary = train(model, rows, args.out, _settings(args), record, stop)
    summary = {"model": str(args.out), "conversations": len(talks), "rows": len(rows), **summary}
    summary["cut"] = sum(len(row.input_ids) > limit for row in whole)
    if world()[0] == 0:  # one process speaks for all
        emit(args, summary, "\n".join(f"{key}: {_short(value)}" for key, value in summary.items()))
    return 130 if summary["status"] == "interrupted" else 0


def _settings(args: argparse.Namespace) -> Any:
    names = ("epochs", "lr", "batch", "micro_batch", "lora_rank", "save_every", "seed", "device", "threads")
    return lazy("spade.sft.train:Settings")(**{name: getattr(args, name) for name in names})


def _context(model: Path) -> int:
    """Tokens a sequence of the model may have."""
    from spade.files import read_json

    found = read_json(model / "config.json", "model config").get("max_position_embeddings")
    return int(found) if isinstance(found, int) else 4096


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
