"""The loop inside a hosted process. Standard library only, so that a host imports no more than its library.

    in:   {"seconds": 5.0, "request": {...}}       one line each
    out:  {"ready": true} | {"failed": "..."}       once, when `start` has returned or raised
          {"reply": {...}} | {"error": "..."}       for every request

The budget `seconds` is processor time: when it is used up, the process ends by SIGPROF wherever it is, also
in C code where no Python handler runs. A busy machine does not shorten it.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
from collections.abc import Callable
from typing import Any, BinaryIO, Final

Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes the plain JSON reply to a request. What it raises is told to the parent; the process goes on."""

FRAME: Final = 64 << 20
"""Bytes of the longest line, either way."""
ERROR_CHARS: Final = 500


def serve(start: Callable[[], Answer], *, memory: int, may_write: bool = False) -> None:
    """Answer requests until the parent closes the input.

    `start` does the slow imports, before any budget runs, and returns what answers. `memory` is the address
    space in bytes: a request that wants more gets a MemoryError, not the machine's memory killer. Unless
    `may_write`, nothing can be written to files once `start` has returned. What the hosted code prints goes
    nowhere, and it reads an empty input.
    """
    requests, replies = _channels()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _limit(resource.RLIMIT_AS, memory)
    _limit(resource.RLIMIT_CORE, 0)
    logging.disable(logging.CRITICAL)
    try:
        answer = start()
    except Exception as error:  # the parent says what to install
        _send(replies, json.dumps({"failed": _words(error)}))
        return
    if not may_write:
        _limit(resource.RLIMIT_FSIZE, 0)  # not before, so that imports may leave their compiled files
    _send(replies, json.dumps({"ready": True}))
    for line in requests:
        _send(replies, _answered(answer, line))


def _answered(answer: Answer, line: bytes) -> str:
    try:
        frame = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, float(frame["seconds"]))
        reply = json.dumps({"reply": answer(frame["request"])})
        if len(reply) > FRAME:
            raise ValueError(f"a reply of {len(reply):,} bytes is too long")
        return reply
    except Exception as error:  # hosted code on hostile text raises anything; the parent decides
        return json.dumps({"error": _words(error)})
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:ERROR_CHARS]


def _send(replies: BinaryIO, text: str) -> None:
    replies.write(text.encode("ascii") + b"\n")
    replies.flush()


def _channels() -> tuple[BinaryIO, BinaryIO]:
    """Requests and replies; standard input and output lead nowhere from here on."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    os.close(nowhere)
    return requests, replies


def _limit(kind: int, limit: int) -> None:
    try:
        resource.setrlimit(kind, (limit, limit))
    except (ValueError, OSError):
        return  # a lower limit is already set, or the system has none of this kind
