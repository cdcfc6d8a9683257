"""`spade corpus build|stats`: make a corpus file, count what a corpus holds."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from spade.cli.main import add_json, emit, lazy, positive
from spade.errors import InputError

SOURCE = "builtin, a .jsonl, .txt or .md file, a folder, or hub:owner/name[@revision][:config][:split]"
DEFAULT_MODEL = "embedded"


def add_corpus(parser: argparse.ArgumentParser) -> None:
    """`spade corpus build|stats`."""
    sub = parser.add_subparsers(dest="action", required=True, metavar="build|stats")
    build = sub.add_parser("build", help="write the documents of a source to one JSONL file")
    build.add_argument("source", help=SOURCE)
    build.add_argument("-o", "--out", type=Path, required=True, help="new .jsonl file")
    build.add_argument("--sample", type=positive, help="take this many documents at random")
    build.add_argument("--seed", type=int, default=0, help="of the sample; default 0")
    build.add_argument("--min-words", type=positive, default=1, help="leave out shorter documents; default 1")
    build.add_argument("--max-words", type=positive, help="cut longer documents")
    stats = sub.add_parser("stats", help="count documents, words, tokens, duplicates and lengths")
    stats.add_argument("corpus", nargs="?", default="builtin", help=SOURCE)
    stats.add_argument("--model", help=f"count tokens of this local model; default {DEFAULT_MODEL}")
    stats.add_argument(
        "--sample", type=positive, default=15_000, help="documents of a hub data set; default 15000"
    )
    for child, handler in ((build, _build), (stats, _stats)):
        add_json(child)
        child.set_defaults(handler=handler)


def _build(args: argparse.Namespace) -> int:
    report = lazy("spade.design.corpus_build:build_corpus")(
        args.source,
        args.out,
        sample=args.sample,
        seed=args.seed,
        min_words=args.min_words,
        max_words=args.max_words,
    )
    text = (
        f"{args.out}: {report.documents:,} documents\n"
        f"left out: {report.duplicates:,} duplicates, {report.too_short:,} too short, "
        f"{report.left_out:,} not in the sample; cut: {report.cut:,}\n"
        f"sha256: {report.sha256}"
    )
    emit(args, {"file": str(args.out), **_row(report)}, text)
    return 0


def _stats(args: argparse.Namespace) -> int:
    stats = lazy("spade.design.corpus_build:corpus_stats")(args.corpus, _counter(args.model), args.sample)
    emit(args, stats, lazy("spade.design.corpus_build:stats_text")(args.corpus, stats))
    return 0


def _counter(model: str | None) -> Callable[[str], int] | None:
    """Token counter of a local model; None when none was asked for and the default one is not built."""
    try:
        ref = lazy("spade.serving.launch:resolve_ref")(model or DEFAULT_MODEL)
    except InputError:
        if model is None:
            return None
        raise
    if ref.path is None:
        raise InputError(f"tokens of '{model}' cannot be counted here; give a local checkpoint")
    counter: Callable[[str], int] = lazy("spade.design.corpus_build:token_counter")(ref.path)
    return counter


def _row(report: object) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(report)  # type: ignore[call-overload, no-any-return]
