"""Python values as plain JSON and back, for what a benchmark solution returns.

Standard library only: this file runs inside the sandbox and in the parent. Exact built-in types are kept
apart (tuple, list, set, dict, int, float, ...); a subclass instance becomes the value of its built-in base,
read with the base's own methods, so nothing a solution defines on a class (`__eq__`, `__iter__`, `__str__`)
is ever compared. Everything else is *opaque*: a handle to an object that stays where it is.

Scalars and lists are themselves; other values are objects with one key:

| value | JSON |
|---|---|
| int beyond 64 bits | `{"i": hex}` |
| nan, inf, -inf | `{"f": text}` |
| tuple, set, frozenset, deque | `{"t" \\| "s" \\| "z" \\| "q": [...]}` |
| dict | `{"d": [[key, value], ...]}` |
| complex | `{"c": [real, imaginary]}`, each a float |
| bytes, bytearray | `{"b": hex}`, `{"y": hex}` |
| range | `{"r": [start, stop, step]}` |
| Decimal, Fraction | `{"D": text}`, `{"F": [numerator, denominator]}` |
| built-in type | `{"T": name}` |
| iterator | `{"n": [...]}`, its first `MAX_ITEMS` elements; reading uses it up |
| opaque | `{"h": [side, number, callable, type name]}` |
"""

from __future__ import annotations

import builtins
import collections
import decimal
import fractions
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

MAX_DEPTH: Final = 200
MAX_ITEMS: Final = 100_000
"""Elements taken from an iterator."""
MAX_NODES: Final = 2_000_000
SMALL: Final = 2**63

_ITERATORS: Final = (types.GeneratorType, map, filter, zip, enumerate, reversed)
_SEQUENCES: Final[tuple[tuple[type, str], ...]] = (
    (tuple, "t"),
    (set, "s"),
    (frozenset, "z"),
    (collections.deque, "q"),
)


class TooLarge(Exception):
    """A value with too many parts, or nested too deeply."""


class Writer:
    """Turns values into JSON. `export` is asked for a handle of an opaque object: `[side, number]`."""

    def __init__(self, export: Callable[[Any], list[Any]]) -> None:
        self.export = export
        self.nodes = 0

    def encode(self, value: Any, depth: int = 0) -> Any:
        """The JSON form. Raises TooLarge."""
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise TooLarge("the value has too many parts or is nested too deeply")
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if -SMALL < value < SMALL else {"i": hex(value)}
        if kind is float:
            return value if value - value == 0.0 else {"f": repr(value)}
        if kind is list:
            return [self.encode(v, depth + 1) for v in value]
        return self._other(value, depth)

    def _other(self, value: Any, depth: int) -> Any:
        for base, tag in _SEQUENCES:
            if isinstance_of(value, base):
                return {tag: [self.encode(v, depth + 1) for v in base.__iter__(value)]}  # type: ignore[attr-defined]
        if isinstance_of(value, dict):
            pairs = dict.items(value)
            return {"d": [[self.encode(k, depth + 1), self.encode(v, depth + 1)] for k, v in pairs]}
        if isinstance_of(value, list):
            return [self.encode(v, depth + 1) for v in list.__iter__(value)]
        if type(value) in _ITERATORS or type(value).__name__.endswith("_iterator") or _is_itertool(value):
            return {"n": [self.encode(v, depth + 1) for v in _some(value)]}
        return self._scalar(value)

    def _scalar(self, value: Any) -> Any:
        for base, form in _SCALARS:
            if isinstance_of(value, base):
                return form(self, value)
        if type(value).__module__ == "numpy" and type(value).__name__ != "function":
            return self.encode(value.tolist()) if hasattr(value, "tolist") else self._opaque(value)
        return self._opaque(value)

    def _opaque(self, value: Any) -> Any:
        name = type.__dict__["__name__"].__get__(type(value))
        if type(value) is type and vars(builtins).get(name := str(value.__name__)) is value:
            return {"T": name}
        return {"h": [*self.export(value), callable(value), name]}


def isinstance_of(value: Any, base: type) -> bool:
    """Whether the real type of `value` (not what its `__class__` says) is `base` or derives from it."""
    return base in type.__dict__["__mro__"].__get__(type(value))


def _is_itertool(value: Any) -> bool:
    return type(value).__module__ == "itertools"


def _some(values: Any) -> Iterator[Any]:
    for count, value in enumerate(values):
        if count >= MAX_ITEMS:
            raise TooLarge(f"an iterator gave more than {MAX_ITEMS} elements")
        yield value


_SCALARS: Final[tuple[tuple[type, Callable[[Writer, Any], Any]], ...]] = (
    (bool, lambda w, v: v),
    (int, lambda w, v: w.encode(int.__add__(v, 0))),
    (float, lambda w, v: w.encode(float.__add__(v, 0.0))),
    (str, lambda w, v: str.__str__(v)),
    (complex, lambda w, v: {"c": [w.encode(complex.real.__get__(v)), w.encode(complex.imag.__get__(v))]}),  # type: ignore[attr-defined]
    (bytes, lambda w, v: {"b": bytes.hex(v)}),
    (bytearray, lambda w, v: {"y": bytearray.hex(v)}),
    (range, lambda w, v: {"r": [w.encode(v.start), w.encode(v.stop), w.encode(v.step)]}),
    (decimal.Decimal, lambda w, v: {"D": decimal.Decimal.__str__(v)}),
    (fractions.Fraction, lambda w, v: {"F": [w.encode(v._numerator), w.encode(v._denominator)]}),
)

_BUILT: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "t": tuple,
    "s": set,
    "z": frozenset,
    "q": collections.deque,
    "n": iter,
    "c": lambda parts: complex(*parts),
    "r": lambda parts: range(*parts),
    "F": lambda parts: fractions.Fraction(*parts),
}


def _builtin_type(name: str) -> type:
    found = vars(builtins)[name]
    if not isinstance(found, type):
        raise ValueError(f"{name} is no type")
    return found


_PARSED: Final[dict[str, Callable[[str], Any]]] = {
    "i": lambda text: int(text, 16),
    "f": float,
    "b": bytes.fromhex,
    "y": bytearray.fromhex,
    "D": decimal.Decimal,
    "T": _builtin_type,
}


def decode(raw: Any, resolve: Callable[[list[Any]], Any]) -> Any:
    """The value of a JSON form; `resolve` turns a handle into an object.

    Only for the sandbox: a hostile form can make building a set or a dict slow. Raises ValueError, TypeError
    or KeyError on what `Writer` never writes.
    """
    if type(raw) is list:
        return [decode(v, resolve) for v in raw]
    if type(raw) is not dict:
        return raw
    ((tag, body),) = raw.items()
    if tag in _PARSED and type(body) is str:
        return _PARSED[tag](body)
    if type(body) is not list:
        raise ValueError(f"a malformed value {tag!r}")
    if tag == "h":
        return resolve(body)
    if tag == "d":
        return {decode(k, resolve): decode(v, resolve) for k, v in body}
    return _BUILT[tag]([decode(v, resolve) for v in body])


def equals(expected: Any, raw: Any, top: bool = True) -> bool:
    """Whether a JSON form is the value `expected`, itself plain JSON (str, number, bool, None, list, dict).

    Python's `==` on built-in values, so 1, 1.0 and True are equal and floats must match exactly; a tuple
    equals a list at the top only, as in LiveCodeBench. Safe on hostile forms: only walks `expected`.
    """
    if type(expected) is list:
        if top and type(raw) is dict and type(raw.get("t")) is list:
            raw = raw["t"]
        return (
            type(raw) is list
            and len(raw) == len(expected)
            and all(equals(e, r, False) for e, r in zip(expected, raw, strict=True))
        )
    if type(expected) is dict:
        pairs = raw.get("d") if type(raw) is dict else None
        if type(pairs) is not list or len(pairs) != len(expected):
            return False
        keys = [p[0] for p in pairs if type(p) is list and len(p) == 2 and type(p[0]) is str]
        if len(keys) != len(pairs) or len(set(keys)) != len(keys):
            return False
        return all(k in expected and equals(expected[k], v, False) for k, v in pairs)
    if type(raw) is dict:
        if type(text := raw.get("i")) is str and len(text) < MAX_NODES:
            try:
                raw = int(text, 16)
            except ValueError:
                return False
        elif type(text := raw.get("f")) is str and text in ("inf", "-inf"):
            raw = float(text)
        else:
            return False
    return type(raw) in (str, int, float, bool, type(None)) and bool(raw == expected)
