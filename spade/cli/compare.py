"""`spade compare`: evaluated runs side by side, each against a reference on the same items."""

from __future__ import annotations

import argparse
from pathlib import Path

from spade.cli.main import add_json, emit, lazy


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Arguments of `spade compare`."""
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run or evaluation folders, a folder of them, or NAME=folder"
    )
    parser.add_argument("--reference", help="name of the run the others are compared with; default the first")
    parser.add_argument("--suite", help="one suite; default all that two runs share")
    parser.add_argument("--paper", action="store_true", help="show published rows of the suite below ours")
    parser.add_argument("--out", type=Path, help="folder for the tables, the page and the plots")
    add_json(parser)
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Print the comparison; the tables go to `--out`."""
    compare_suites = lazy("spade_evals.compare:compare_suites")
    report = compare_suites(args.runs, args.reference, args.out, suite=args.suite, paper=args.paper)
    emit(args, report, str(report))
    return 0
