"""`spade serve`: a checkpoint, run, scripted player or endpoint behind an OpenAI-compatible address."""

from __future__ import annotations

import argparse
import asyncio
import os

from spade.cli.evaluate import config_of
from spade.cli.main import add_json, emit, lazy, positive
from spade.config_load import with_overrides
from spade.machine import require_device


def add_serve(parser: argparse.ArgumentParser) -> None:
    """Arguments of `spade serve`."""
    parser.add_argument(
        "--ckpt", required=True, metavar="REF",
        help="embedded, RUN, RUN@STEP, folder, model name, scripted:KIND or openai:MODEL@URL",
    )  # fmt: skip
    parser.add_argument("--port", type=_port, default=8000, help="port; 0 takes a free one; default 8000")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; default this machine only")
    parser.add_argument("--name", help="the model's name for clients; default REF")
    parser.add_argument(
        "--timeout", type=positive, default=600, metavar="SECONDS", help="longest request; default 600"
    )
    parser.add_argument(
        "--max-body", type=positive, default=8, metavar="MIB", help="largest request body; default 8"
    )
    parser.add_argument(
        "--max-waiting", type=positive, default=256, metavar="N", help="requests at once; default 256"
    )
    parser.add_argument(
        "overrides", nargs="*", default=[], metavar="key=value", help="such as serving.device=cpu"
    )
    add_json(parser)
    parser.set_defaults(handler=run)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port from 0 to 65535")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; exit code 0."""
    cfg = with_overrides(config_of(args.ckpt), args.overrides)
    require_device(cfg.serving.device)
    serving = cfg.serving
    if serving.deterministic is None:  # clients come when they come: their rows share batches
        serving = serving.model_copy(update={"deterministic": False})
    serve_model = lazy("spade.serving.api.run:serve_model")
    limits = lazy("spade.serving.api.service:Limits")(
        body_bytes=args.max_body << 20, seconds=args.timeout, waiting=args.max_waiting
    )

    def ready(name: str, url: str) -> None:
        emit(args, {"url": url, "model": name}, f"serving {name} at {url}; Ctrl-C stops")
        args.stdout.flush()

    asyncio.run(serve_model(args.ckpt, serving, args.host, args.port, args.name, limits, os.environ, ready))
    return 0
