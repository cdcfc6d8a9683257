"""Function calls as plain values: name and literal arguments, and what may not be run.

Literals are strings, finite numbers, True, False, None, and lists, tuples and dicts of these. Standard
library only, since the processes that run calls use the same code. The reader of call texts is
`spade_evals.grade.calls_reader`.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NoReturn

MAX_CALLS: Final = 64
"""Calls of one reply; the longest reference has 34."""
MAX_TEXT: Final = 100_000
"""Characters of a reply that are read."""
MAX_STRING: Final = 20_000
"""Characters of one argument."""
MAX_ITEMS: Final = 2_000
"""Values in one list or dict."""
MAX_DIGITS: Final = 300
MAX_DEPTH: Final = 20
"""Levels of lists and dicts in one argument."""


class RefusalCode(StrEnum):
    """Why calls are not run."""

    NOT_LITERAL = "not_literal"
    """An argument is an expression, a name or another call."""
    PRIVATE_NAME = "private_name"
    """A name that begins with an underscore, such as `__import__`."""
    TOO_MANY = "too_many"
    TOO_LONG = "too_long"
    TOO_DEEP = "too_deep"
    BUILTIN = "builtin"
    """A built-in of Python, such as `exec`, that is no function on offer."""
    BAD_NAME = "bad_name"
    """A name that is no identifier, or an argument given twice."""
    BAD_NUMBER = "bad_number"
    """A number with hundreds of digits, or one that is not finite."""
    TOO_COSTLY = "too_costly"
    """Running the calls took more time or memory than allowed."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The code, and in a few words what it is about."""

    code: RefusalCode
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.code.value}: {self.detail}" if self.detail else self.code.value


class Refused(Exception):
    """Raised while reading; carries the refusal."""

    def __init__(self, code: RefusalCode, detail: str = "") -> None:
        self.refusal = Refusal(code, detail[:80])
        super().__init__(str(self.refusal))


@dataclass(frozen=True, slots=True)
class Call:
    """One call with plain values. `str()` is its source text, which `read_calls` reads back."""

    name: str
    """May have dots."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        given = [repr(a) for a in self.args] + [f"{k}={v!r}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(given)})"

    @staticmethod
    def of(name: str, kwargs: dict[str, Any]) -> Call:
        """A call out of a name and JSON arguments. Raises Refused where text of it would be refused."""
        check_name(name)
        for key in kwargs:
            check_argument_name(key)
        for value in kwargs.values():
            check_value(value, 0)
        return Call(name, (), dict(kwargs))


_IDENTIFIER = re.compile(r"[^\W\d]\w*\Z")


def check_name(name: str) -> None:
    """Raises Refused for a name of a function that is private or no name."""
    for word in name.split("."):
        if word.startswith("_"):
            raise Refused(RefusalCode.PRIVATE_NAME, name)
        if not _IDENTIFIER.match(word) or keyword.iskeyword(word):
            raise Refused(RefusalCode.BAD_NAME, name)


def check_argument_name(name: str) -> None:
    """Raises Refused for a name of an argument that is no name, or has two underscores before it."""
    if name.startswith("__"):
        raise Refused(RefusalCode.PRIVATE_NAME, name)
    if not _IDENTIFIER.match(name):
        raise Refused(RefusalCode.BAD_NAME, name)


def check_value(value: Any, depth: int) -> None:
    """Raises Refused for a plain value that is too long, too deep or out of range."""
    if depth > MAX_DEPTH:
        raise Refused(RefusalCode.TOO_DEEP, f"more than {MAX_DEPTH} levels")
    if isinstance(value, str):
        if len(value) > MAX_STRING:
            raise Refused(RefusalCode.TOO_LONG, f"an argument of {len(value):,} characters")
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int):
        if value.bit_length() > 4 * MAX_DIGITS:
            raise Refused(RefusalCode.BAD_NUMBER, f"{value.bit_length():,} bits")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise Refused(RefusalCode.BAD_NUMBER, str(value))
    elif isinstance(value, list | tuple | dict):
        if len(value) > MAX_ITEMS:
            raise Refused(RefusalCode.TOO_LONG, f"{len(value):,} values in one argument")
        for item in _inside(value):
            check_value(item, depth + 1)
    else:
        _refuse_kind(value)


def _inside(value: list[Any] | tuple[Any, ...] | dict[Any, Any]) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.keys()
        yield from value.values()
    else:
        yield from value


def _refuse_kind(value: Any) -> NoReturn:
    raise Refused(RefusalCode.NOT_LITERAL, type(value).__name__)
