"""`spade envs validate | run | play`: judge, try and play environment programs from the command line.

Exit codes: 0 done, 1 a program was rejected (`validate`), 2 wrong input, 3 the machinery failed.
"""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from spade.envs.cli_run import run_once as run_once
from spade.envs.levels import ORDER
from spade.errors import SandboxError, SpadeError
from spade.types import GAME_TYPES

MACHINERY_FAILED = 3
"""Exit code when the sandbox, or the model of a judge, cannot do its work; 1 would read as "rejected"."""
LARGEST_SEED = 2**63 - 1

Handler = Callable[[argparse.Namespace], int]


def add_parsers(parser: argparse.ArgumentParser, counter: Any = None, judge: Any = None) -> None:
    """Add the three verbs. `counter(total, title)` shows progress (see `spade.report.progress.counter`);
    `judge(cfg)` opens the model of the validator's stage of that name (see `spade.design.judging`)."""
    sub = parser.add_subparsers(dest="action", required=True, metavar="validate|run|play")
    check = sub.add_parser("validate", help="judge programs: is this a game worth playing?")
    check.add_argument(
        "files", nargs="+", metavar="FILE_OR_DIR", help="programs, folders, pools, or key=value overrides"
    )
    check.add_argument("--type", choices=GAME_TYPES, help="judge as this type, whatever the program says")
    check.add_argument("--floor-max", type=float, help="highest return of a player without skill")
    check.add_argument("--min-oracle-turns", type=int, help="fewest turns the program's solution may need")

    run = sub.add_parser("run", help="load, reset and step programs in the sandbox, and say what happened")
    run.add_argument("files", nargs="+", metavar="FILE", help="programs, or key=value overrides")
    run.add_argument("--seed", type=seed, default=1, help="seed of reset; default 1")
    run.add_argument("--action", default="go", help="the text that reaches step, unchanged; default go")
    run.add_argument(
        "--deadline", type=seconds, default=1.0, help="seconds of CPU and of wall time per call; default 1"
    )
    run.add_argument("--memory", type=mebibytes, default=128, help="MiB per program; default 128")

    play = sub.add_parser("play", help="play one program in the terminal")
    play.add_argument("files", nargs="+", metavar="FILE", help="one program, and key=value overrides")
    play.add_argument("--seed", type=seed, default=0, help="seed of reset; default 0")
    play.add_argument("--hint", action="store_true", help="show the program's own hint first")
    play.add_argument("--policy", choices=("oracle", "random", "noop"), help="let a script play")

    for verb, child in (("validate", check), ("run", run), ("play", play)):
        child.add_argument("--level", choices=ORDER, help="isolation level; the strongest by default")
        child.add_argument("--json", action="store_true", help="print JSON on stdout, logs on stderr")
        shown = counter or (lambda total, title: nullcontext())
        child.set_defaults(handler=_handler(verb), counter=shown, judge=judge)


def _handler(verb: str) -> Handler:
    """The verb's function, imported when it is called: running a program needs no validator."""

    def guarded(args: argparse.Namespace) -> int:
        handler: Handler = getattr(importlib.import_module(f"spade.envs.cli_{verb}"), f"cmd_{verb}")
        try:
            return handler(args)
        except BrokenPipeError:
            raise  # the reader of our output is gone, see `spade.cli.main`
        except OSError as error:
            text = f"The machine refuses what the sandbox needs ({error.strerror or error}); try again."
            failure = SandboxError(text)
            failure.exit_code = MACHINERY_FAILED
            raise failure from error
        except SpadeError as error:
            if error.exit_code == SpadeError.exit_code:
                error.exit_code = MACHINERY_FAILED
            raise

    return guarded


def seed(text: str) -> int:
    """Argument type: a whole number from 0."""
    if not text.isdecimal() or int(text) > LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 0 to {LARGEST_SEED}")
    return int(text)


def seconds(text: str) -> float:
    """Argument type: a positive number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number of seconds")
    return value


def mebibytes(text: str) -> int:
    """Argument type: a whole number from 16."""
    if not text.isdecimal() or int(text) < 16:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of MiB from 16")
    return int(text)
