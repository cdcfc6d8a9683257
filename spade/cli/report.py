"""`spade report`: runs as one HTML page, live or as a file, or as cards."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spade.cli.main import add_json, emit, lazy
from spade.errors import InputError
from spade.runs import read_record

if TYPE_CHECKING:
    from spade.report.html import Comparison


def add_report(parser: argparse.ArgumentParser) -> None:
    """Arguments of `spade report`."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    parser.add_argument(
        "-o", "--out", type=Path, help="the page, or the folder of the cards; default in the run"
    )
    parser.add_argument(
        "--beside", nargs="+", default=[], metavar="RUN", help="further evaluated runs for the comparison"
    )
    parser.add_argument("--reference", help="name of the run the others are compared with; default the first")
    parser.add_argument("--live", action="store_true", help="serve the page on this machine and refresh it")
    parser.add_argument("--port", type=int, default=8585, help="of --live; default 8585")
    parser.add_argument("--card", action="store_true", help="write a model card and a pool card instead")
    add_json(parser)
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Write or serve."""
    from spade.report.html import page, write_page
    from spade.report.run_data import RunData, read_run

    documents = {folder: _documents(folder) for folder in args.runs}

    def read() -> list[RunData]:
        return [read_run(folder, documents[folder]) for folder in args.runs]

    def compared() -> Comparison:
        return _comparison(args.runs, args.beside, args.reference)

    if args.live:
        return _serve(args, lambda version: page(read(), compared(), version))
    comparison = compared()
    if args.card:
        from spade.report.cards import write_cards

        if len(args.runs) > 1:
            raise InputError("a card belongs to one run; name one")
        paths = write_cards(args.out or args.runs[0], read()[0], comparison)
    else:
        paths = [write_page(args.out or args.runs[0] / "report.html", read(), comparison)]
    emit(args, {"files": [str(p) for p in paths]}, "\n".join(map(str, paths)))
    return 0


def _serve(args: argparse.Namespace, make) -> int:  # type: ignore[no-untyped-def]
    from spade.report.live import LiveServer

    with LiveServer(args.port, list(args.runs), make) as server:
        print(f"{server.url} shows the run as it goes on; Ctrl-C ends it", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


def _documents(folder: Path) -> dict[str, str]:
    """Texts of the run's corpus by id; without the corpus at hand the page leaves them out."""
    from spade.design.corpus import Corpus

    corpus = (read_record(folder).config.get("design") or {}).get("corpus")
    if not isinstance(corpus, str):
        return {}
    try:
        return {document.id: document.text for document in Corpus.load(corpus).documents}
    except InputError:
        return {}


def _comparison(runs: Sequence[Path], beside: Sequence[str], reference: str | None = None) -> Comparison:
    """What `spade compare` says of the runs that were evaluated, and of the runs beside them."""
    from spade.report.html import Comparison

    evaluated = lazy("spade_evals.results:suites_of")
    paths: list[Path | str] = list(lazy("spade_evals.results:expand")(beside))
    there = {Path(path).resolve() for path in paths}
    paths += [folder for folder in runs if folder.resolve() not in there and evaluated(folder)]
    if not paths:
        command = f"spade eval --suite heldout --ckpt {runs[0]}"
        return Comparison(
            missing=f"Not evaluated yet. {command} measures it; --beside adds the runs to compare with."
        )
    report = lazy("spade_evals.compare:compare_suites")(paths, reference)
    reports = getattr(report, "reports", (report,))
    frames, claims = lazy("spade_evals.render:frames"), lazy("spade_evals.compare_files:claims")
    tables = [
        (title, list(frame.columns), frame.to_numpy().tolist())
        for one in reports
        for title, frame in frames(one)
    ]
    notes = [[note] for one in reports for note in one.problems]
    if notes:
        tables.append(("Notes", ["what else is to be known"], notes))
    said = [claim.replace("**", "") for one in reports for claim in claims(one)]
    return Comparison(tables, said)
