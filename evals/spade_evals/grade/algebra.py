"""The math grader's hosted process (`spade_evals.hosting`): compares answers with math-verify.

    {"reference": ..., "answer": ...}  ─►  {"same": true}
    {"value": ...}                     ─►  {"number": 3.14}

A process of its own, because math-verify refuses threads and sympy can be sent into computations without end.
"""

from __future__ import annotations

import math
import re
from typing import Any

from spade_evals.grade.structure import same
from spade_evals.hosting.serve import Answer, serve

MEMORY = 4 << 30
"""Address space in bytes."""

_SIDE_BY_SIDE = re.compile(r"\d\s+\d|\d\s*(?:\[|\\\{)")
"""latex2sympy would add them: `2 3` and `2[3]` are 5 to it."""

_IMAGINARY = re.compile(r"(?<=[\d)}])\s*i(?![a-zA-Z])")
"""Set apart, so that math-verify makes the same assumptions about the symbols of `9i` and of `9 i`."""


class Unreadable(ValueError):
    """math-verify finds no expression in a text."""


def start() -> Answer:
    """The slow import."""
    import math_verify  # noqa: F401

    return answer


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


if __name__ == "__main__":
    serve(start, memory=MEMORY)
