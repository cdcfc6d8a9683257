"""The grader's child process: compares answers with math-verify, one request per line.

    {"reference": ..., "answer": ..., "seconds": 5.0}  ─►  {"same": true} | {"error": "..."}
    {"value": ..., "seconds": 5.0}                     ─►  {"number": 3.14} | {"error": "..."}

math-verify refuses threads and sympy can be sent into computations without end, also in C code where no
Python handler runs. So each request has a budget of processor time, kept by the kernel: when it is used up
the process ends by SIGPROF, which the parent reads as a time-out. A busy machine does not shorten it.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import resource
import signal
import sys
from typing import Any, TextIO

from spade_evals.grade.structure import same

MEMORY = 4 << 30
"""Address space in bytes: an answer that wants more gets a MemoryError, not the machine's memory killer."""

READY = "ready"


_SIDE_BY_SIDE = re.compile(r"\d\s+\d|\d\s*(?:\[|\\\{)")
"""latex2sympy would add them: `2 3` and `2[3]` are 5 to it."""


_IMAGINARY = re.compile(r"(?<=[\d)}])\s*i(?![a-zA-Z])")
"""Set apart, so that math-verify makes the same assumptions about the symbols of `9i` and of `9 i`."""


class Unreadable(ValueError):
    """math-verify finds no expression in a text."""


def main() -> None:
    """Serve requests on standard input until it closes."""
    replies = _private_stdout()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _limit_memory()
    logging.disable(logging.CRITICAL)
    import math_verify  # noqa: F401  the slow import, before the first request is timed

    print(READY, file=replies, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, float(request["seconds"]))
        try:
            reply = answer(request)
        except Exception as error:  # whatever the algebra raises is a value for the parent
            reply = {"error": f"{type(error).__name__}: {error}"[:300]}
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        print(json.dumps(reply), file=replies, flush=True)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The reply to one request."""
    if "value" in request:
        return {"number": number_of(request["value"])}
    return {"same": same(request["reference"], request["answer"], equal)}


def equal(reference: str, given: str) -> bool:
    """math-verify's judgement of two expressions. Raises Unreadable when it cannot read one of them."""
    from math_verify import verify

    return bool(verify(_read(reference), _read(given), timeout_seconds=None, raise_on_error=True))


def number_of(text: str) -> float | None:
    """The value of `2\\pi` and the like; None where it is no real number. Raises Unreadable."""
    value = _read(text)
    try:
        number = float(value.doit().evalf())
    except (TypeError, AttributeError):
        return None
    return number if math.isfinite(number) else None


def _read(text: str) -> Any:
    from math_verify import LatexExtractionConfig, parse

    if _SIDE_BY_SIDE.search(text):
        raise Unreadable(f"two numbers side by side in {text!r}")
    text = _IMAGINARY.sub(" i", text)
    config = LatexExtractionConfig(boxed_match_priority=-1)
    found = parse(
        f"${text}$", [config], fallback_mode="no_fallback", parsing_timeout=None, raise_on_error=True
    )  # type: ignore[arg-type]
    if not found:
        raise Unreadable(f"no expression in {text!r}")
    from sympy import I  # type: ignore[import-untyped]

    unit = {symbol: I for symbol in getattr(found[0], "free_symbols", ()) if symbol.name == "i"}
    return found[0].subs(unit) if unit else found[0]


def _private_stdout() -> TextIO:
    """The reply channel; what libraries print goes nowhere."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return channel


def _limit_memory() -> None:
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except (ValueError, OSError):
        return  # a lower limit is already set


if __name__ == "__main__":
    main()
