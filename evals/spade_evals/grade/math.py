r"""Grading in mathematics: the last box, one spelling, exact numbers, then math-verify in a child process.

    read_answer ──► clean ──► two plain numbers? decided here, exactly
                                └─ otherwise ──► `spade_evals.grade.algebra` in a killable process

Nothing depends on the calling thread: math-verify runs in the main thread of its own process. The answer has
to be one value in one box; a box with many values is compared as a list, so a dump earns nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from spade.play.actions import last_box
from spade_evals.grade.latex import MAX_CHARS, clean, number_with_unit, plain_number
from spade_evals.grade.structure import elements, value_of
from spade_evals.hosting.supervisor import Crashed, Expired, Lost, NotStarted, Pool, Raised, few
from spade_evals.question import GraderLost, GraderTimeout

VERSION = 1
"""Raised whenever a rule of grading changes."""

SECONDS = 5.0
"""Processor time for one comparison. A usual one takes milliseconds."""

_CHILD = "spade_evals.grade.algebra"
_PHRASE = re.compile(r"####|\b(?:answer|result)\b\s*(?:is|:|=|would be|equals)?", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\n|[.!?](?=\s+[A-Z]|\s*$)")
_PHRASES, _SENTENCE = 20, 400
"""Phrases looked at, from the last one back, and characters read after each."""
_SPOKEN_NUMBER = re.compile(r"[-−]?\s*(?:[$€£]\s*)?\d[\d,]*(?:\.\d+)?(?:\s*/\s*\d+)?")


class Ungradable(Exception):
    """The algebra cannot read this answer, or broke on it."""


def grader_version() -> str:
    """Name and version of everything a verdict depends on, for fingerprints."""
    return "+".join([f"spade-math-{VERSION}", *(f"{name}-{_installed(name)}" for name in _LIBRARIES)])


_LIBRARIES = ("math-verify", "latex2sympy2_extended", "sympy")


@cache
def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


# --- reading -------------------------------------------------------------------------------------------


def read_answer(text: str, phrase: bool = False) -> str | None:
    r"""The content of the last `\boxed{}`; with `phrase`, else the last number after an answer phrase.

    A phrase is `####`, "answer is", "Answer:" and the like; the last one counts, up to the end of its
    sentence. None when there is nothing to grade.
    """
    box = last_box(text)
    if box is not None:
        return box or None
    return _after_phrase(text) if phrase else None


def _after_phrase(text: str) -> str | None:
    for match in reversed(list(_PHRASE.finditer(text))[-_PHRASES:]):
        rest = text[match.end() : match.end() + _SENTENCE].lstrip()
        numbers = _SPOKEN_NUMBER.findall(_SENTENCE_END.split(rest, maxsplit=1)[0])
        if numbers:
            return str(numbers[-1]).strip()
    return None


# --- comparing -----------------------------------------------------------------------------------------


def same_expression(reference: str, answer: str) -> bool:
    """Whether `answer` says the same as `reference`; both as written.

    Raises GraderTimeout or Ungradable for an answer the algebra cannot take, GraderLost for a killed process.
    """
    decided = decide(reference, answer)
    if decided is not None:
        return decided
    return bool(_ask({"reference": clean(reference), "answer": clean(answer)})["same"])


def decide(reference: str, answer: str) -> bool | None:
    """The same where no algebra is needed: two plain numbers, or nothing to read; else None.

    Equal texts are no shortcut: a reference that the algebra cannot read has to show as such.
    """
    if len(answer) > MAX_CHARS:
        return False
    left, right = clean(reference), clean(answer)
    if not right:
        return False
    number, other = plain_number(left), plain_number(value_of(right))
    if number is None or other is None:
        return None
    # 15 % may be stated as 15, where a percentage is asked, and is 0.15.
    scale = ("%" in reference) - ("%" in answer)
    return number == other or (scale != 0 and number == other * Fraction(100) ** scale)


def number_in(answer: str) -> float | None:
    """The number an answer states, a unit after it allowed; None where it states none.

    `x = 3.2`, `50.7 \\text{ atm}`, `3.5 \\times 10^{-19}`, `\\frac{\\pi}{4}`. Raises as `same_expression`.
    """
    if len(answer) > MAX_CHARS:
        return None
    return _number(clean(answer))


def _number(text: str) -> float | None:
    text = value_of(text)
    exact = number_with_unit(text)
    if exact is not None:
        return _float(exact)
    if len(elements(text)) != 1:
        return None
    if not text or not re.search(r"\d|\\(?:pi|sqrt|infty|frac|ln|log|e)|\be\b", text):
        return None
    value = _ask({"value": text})["number"]
    return None if value is None else float(value)


def _float(value: Fraction) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def numbers_in(answer: str, separated: bool = False) -> list[float] | None:
    """The numbers of a list, tuple, set or column, or of one number; None where one of them is none.

    `separated` says that commas separate: `1,234` is then two numbers.
    """
    if len(answer) > MAX_CHARS:
        return None
    text = clean(answer)
    whole = None if separated else number_with_unit(value_of(text))
    values = [_number(item) for item in elements(text)] if whole is None else [_float(whole)]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None


def close(value: float, reference: float, relative: float) -> bool:
    """Within `relative` of the reference; next to nothing where the reference is 0."""
    return math.isclose(
        value, reference, rel_tol=0.0, abs_tol=max(abs(reference) * relative, 1e-9 * (reference == 0))
    )


def all_close(values: Sequence[float], references: Sequence[float], relative: float) -> bool:
    """The same for two lists of one length, in ascending order of both."""
    pairs = zip(sorted(values), sorted(references), strict=False)
    return len(values) == len(references) and all(close(value, wanted, relative) for value, wanted in pairs)


# --- the child processes -------------------------------------------------------------------------------


@cache
def pool() -> Pool:
    """The processes all math tasks of this process share."""
    return Pool(_CHILD, few())


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return pool().ask(request, SECONDS)
    except Expired as error:
        raise GraderTimeout(str(error)) from None
    except (Raised, Crashed) as error:
        raise Ungradable(str(error)) from None
    except (Lost, NotStarted) as error:
        raise GraderLost(str(error)) from None
