"""`spade VERB ...`: find the verb, run it, turn an error into one sentence and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong input, 130 interrupted. `SPADE_DEBUG=1` shows tracebacks.
Only the standard library is imported before the verb is known, so that `spade --help` is instant.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import io
import json
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spade.errors import InputError, SpadeError

VERBS: dict[str, tuple[str, str]] = {
    "train": ("spade.cli.train:add_train", "run a training config (self-play or a baseline)"),
    "sft": ("spade.cli.sft:add_sft", "fine-tune a checkpoint on chats, programs or plays: a warm start"),
    "eval": ("spade.cli.evaluate:add_eval", "evaluate a checkpoint on a suite"),
    "data": ("spade.cli.data:add_data", "list or fetch the benchmark data of the evaluation tasks"),
    "compare": ("spade.cli.compare:add_compare", "compare evaluated runs with paired statistics"),
    "report": ("spade.cli.report:add_report", "show runs on one HTML page, live or as a file, or as cards"),
    "config": ("spade.cli.tools:add_config", "show, diff or describe configurations"),
    "list": ("spade.cli.tools:add_list", "list suites, sources, backends, stages, sinks, codecs, configs"),
    "run": ("spade.cli.tools:add_run", "summarise or publish a run folder"),
    "envs": ("spade.cli.delegate:add_envs", "validate, run or play environment programs"),
    "pool": ("spade.cli.pool:add_pool", "make, judge, measure, export or import a pool of programs"),
    "corpus": ("spade.cli.corpus:add_corpus", "build or inspect the documents behind the briefs"),
    "models": ("spade.cli.delegate:add_models", "fetch or list small models"),
    "embedded": ("spade.cli.delegate:add_embedded", "build or describe the embedded model"),
    "serve": ("spade.cli.serve:add_serve", "serve a model at an OpenAI-compatible address"),
    "study": ("spade.cli.study:add_study", "study what training does to a model's output distribution"),
    "doctor": ("spade.cli.doctor:add_doctor", "check this machine and installation"),
}


class MixedParser(argparse.ArgumentParser):
    """A parser, and parsers of sub-verbs, that take options and positionals in any order:
    `spade train demo --json seed=1`."""

    _mixing = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"formatter_class": _Formatter, **kwargs})

    def add_subparsers(self, **kwargs: Any) -> Any:
        """As in the base class; the help of a sub-verb is also its description."""
        self._mixing = True  # argparse cannot mix at this level; the parsers below do
        return super().add_subparsers(**{"action": _Described, **kwargs})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in the base class, options and positionals in any order."""
        if self._mixing:
            return super().parse_known_args(args, namespace)
        self._mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixing = False


class _Formatter(argparse.HelpFormatter):
    """Names the value of an option by its kind, where the option does not: `--out PATH`, `--limit N`."""

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        kinds: dict[Any, str] = {None: "NAME", Path: "PATH", float: "X"}
        return kinds.get(action.type, "N")


class _Described(argparse._SubParsersAction):  # type: ignore[type-arg]
    def add_parser(self, name: str, **kwargs: Any) -> Any:
        return super().add_parser(name, **{"description": kwargs.get("help"), **kwargs})


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `spade` command; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # "±" on an ASCII terminal is no reason to fail
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        from spade import __version__

        print(f"spade {__version__}")
        return 0
    try:
        return _run(arguments[0], arguments[1:])
    except SpadeError as error:
        if os.environ.get("SPADE_DEBUG"):
            raise
        print(f"spade: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        if os.environ.get("SPADE_DEBUG"):
            raise
        print("spade: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (`| head`) is gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if os.environ.get("SPADE_DEBUG") or error.strerror is None:
            raise
        where = f"{error.filename}: " if error.filename else ""
        print(
            f"spade: the system refuses: {where}{error.strerror} (SPADE_DEBUG=1 shows where)", file=sys.stderr
        )
        return InputError.exit_code if error.filename else SpadeError.exit_code


def usage() -> str:
    """The text of `spade --help`: one line per verb."""
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {phrase}" for verb, (_, phrase) in VERBS.items()]
    return "\n".join(
        [
            "usage: spade VERB [options]",
            "",
            "Self-play in adaptive synthetic executable environments.",
            "",
            *lines,
            "",
            "spade VERB --help explains a verb; start with: spade train demo",
        ]
    )


def emit(args: argparse.Namespace, value: Any, text: str) -> None:
    """Print the one result of a verb: a JSON document with `--json`, else `text`."""
    if not args.json:
        print(text)
        return
    from spade.files import plain

    # `redirected` sends everything else to stderr, so the document goes to the process's real stdout.
    print(json.dumps(plain(value), indent=2, ensure_ascii=False, default=str), file=args.stdout)


def add_json(parser: argparse.ArgumentParser) -> None:
    """The `--json` flag every verb has."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document on stdout, logs on stderr"
    )


def positive(text: str) -> int:
    """Argument type: a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive whole number")
    return int(text)


def lazy(where: str) -> Any:
    """Import "module:attr" now. Raises InputError when a package that it needs is not installed."""
    module_name, _, attribute = where.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise InputError(f"this command needs the module '{error.name}', which is not installed") from error
    return getattr(module, attribute)


def parser_of(verb: str) -> MixedParser:
    """The parser of a verb of `VERBS`."""
    where, phrase = VERBS[verb]
    parser = MixedParser(prog=f"spade {verb}", description=phrase)
    lazy(where)(parser)
    return parser


def _run(verb: str, rest: list[str]) -> int:
    if verb not in VERBS:
        near = difflib.get_close_matches(verb, VERBS, n=1, cutoff=0.4)
        hint = f"did you mean 'spade {near[0]}'?" if near else "spade --help lists the verbs"
        raise InputError(f"unknown verb '{verb}'; {hint}")
    args = parser_of(verb).parse_args(rest)
    warnings.filterwarnings("ignore", category=SyntaxWarning)  # slips of programs that are read, not ours
    args.stdout = sys.stdout
    args.command = _command(verb, rest)
    # Handlers here print their document with `emit`; whatever else is printed below them is a log.
    # Delegated handlers (envs, embedded) print their own document.
    ours = getattr(args, "json", False) and args.handler.__module__.startswith("spade.cli.")
    with contextlib.redirect_stdout(sys.stderr) if ours else contextlib.nullcontext():
        return args.handler(args) or 0


def _command(verb: str, rest: Sequence[str]) -> str:
    import shlex

    return shlex.join(["spade", verb, *rest])


if __name__ == "__main__":
    sys.exit(main())
