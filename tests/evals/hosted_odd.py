"""A hosted process that does not keep the protocol. `python -m hosted_odd`; the folder's `odd` says how."""

from __future__ import annotations

import os
import time
from pathlib import Path

from spade_evals.hosting import serve

HOW = (Path(os.environ["TMPDIR"]) / "odd").read_text()
SAID = {
    "no JSON": "hm",
    "no reply": "[1]",
    "two replies": '{"reply": {}}\n{"reply": {}}',
    "long": "x" * 5_000,
}


def start() -> serve.Answer:
    """Breaks at once, or answers."""
    if HOW == "no library":
        raise ModuleNotFoundError("No module named 'textarena'")
    if HOW == "exits":
        os._exit(7)
    return lambda request: request


def odd(answer: serve.Answer, line: bytes) -> str:
    """In place of a reply."""
    if HOW == "closes":
        os.closerange(3, 100)
        time.sleep(60.0)
    return SAID[HOW]


if __name__ == "__main__":
    serve._answered = odd
    serve.serve(start, memory=8 << 30)
