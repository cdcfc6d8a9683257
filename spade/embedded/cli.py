"""`spade embedded build | card`: make the embedded model from its recipe, measure it."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

MODEL = Path(__file__).with_name("model")


def add_parsers(sub: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Attach the two verbs below `spade embedded`."""
    build = sub.add_parser("build", help="make the embedded model from the committed recipe")
    build.add_argument("--out", type=Path, default=MODEL, help="folder to write ; default the shipped one")
    build.add_argument("--scale", type=float, default=1.0, help="share of the recipe's tokens; default 1")
    build.add_argument(
        "--keep-stages", type=Path, help="folder for the model at the end of each phase: pretrain, skill, sft"
    )
    build.add_argument("--no-card", action="store_true", help="do not measure the result")
    build.add_argument(
        "--json", action="store_true", help="print one JSON document on stdout, logs on stderr"
    )
    build.set_defaults(handler=cmd_build)
    card = sub.add_parser("card", help="measure a checkpoint as Designer and Agent and write its card")
    card.add_argument("--ckpt", default="embedded", metavar="REF", help="a checkpoint; default embedded")
    card.add_argument("--samples", type=int, default=500, help="designs and plays measured; default 500")
    card.add_argument("--write", action="store_true", help="write README.md and card.json into the folder")
    card.add_argument("--json", action="store_true", help="print one JSON document on stdout, logs on stderr")
    card.set_defaults(handler=cmd_card)


def log(text: str) -> None:
    """Progress goes to standard error, results to standard output."""
    print(text, file=sys.stderr, flush=True)


def cmd_build(args: argparse.Namespace) -> int:
    """Build, then measure; exit 1 when the card's bars do not hold."""
    from spade.embedded.build import Recipe, build

    recipe = Recipe()
    recipe = Recipe(
        pretrain_tokens=int(recipe.pretrain_tokens * args.scale),
        skill_tokens=int(recipe.skill_tokens * args.scale),
        sft_tokens=int(recipe.sft_tokens * args.scale),
    )
    summary = build(args.out, recipe, log, args.keep_stages)
    log(f"built in {summary['minutes']:.1f} min: {args.out}")
    if args.no_card:
        return 0
    return _measure(str(args.out), args.out, 500, args.json)


def cmd_card(args: argparse.Namespace) -> int:
    """Measure one checkpoint."""
    from spade.serving.launch import resolve_ref

    folder = Path(str(resolve_ref(args.ckpt).path)) if args.write else None
    return _measure(args.ckpt, folder, args.samples, args.json)


def _measure(ref: str, folder: Path | None, samples: int, as_json: bool) -> int:
    from spade.config_load import load_config
    from spade.embedded.card import KINDS, measure, write_card

    cards = {
        kind: asyncio.run(measure(ref, load_config(config, []), samples, log=log))
        for kind, config in KINDS.items()
    }
    if folder is not None:
        write_card(folder, cards)
    if as_json:
        print(json.dumps({kind: asdict(card) for kind, card in cards.items()}))
    else:
        for kind, card in cards.items():
            print(kind)
            for key, value in asdict(card).items():
                print(f"  {key:18} {value:.3f}" if isinstance(value, float) else f"  {key:18} {value}")
    return 0 if all(card.holds() for card in cards.values()) else 1
