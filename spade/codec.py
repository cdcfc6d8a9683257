"""The one codec between records and plain JSON values."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal, TypeVar

T = TypeVar("T")


def to_json(record: Any) -> Any:
    """Turn a record (or a nest of records, tuples, dicts, enums) into plain JSON values.

    A member of a tagged union (`tagged` is true on its class) carries its class name under the key "is".
    """
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        out = {f.name: to_json(getattr(record, f.name)) for f in dataclasses.fields(record)}
        return {"is": type(record).__name__, **out} if getattr(record, "tagged", False) else out
    if isinstance(record, Enum):
        return record.value
    if isinstance(record, Mapping):
        return {str(k): to_json(v) for k, v in record.items()}
    if isinstance(record, list | tuple):
        return [to_json(v) for v in record]
    return record


def from_json(kind: type[T], value: Any) -> T:
    """Inverse of `to_json`. Raises KeyError, TypeError or ValueError on data that does not fit `kind`."""
    return typing.cast(T, _decode(kind, value))


def _decode(kind: Any, value: Any) -> Any:
    origin = typing.get_origin(kind)
    args = typing.get_args(kind)
    if kind is Any or origin is Literal:
        return value
    if origin in (typing.Union, types.UnionType):
        return _decode_union(args, value)
    if origin is tuple:
        inner = args[:1] * len(value) if len(args) == 2 and args[1] is Ellipsis else args
        return tuple(_decode(k, v) for k, v in zip(inner, value, strict=True))
    if origin is dict:
        return {k: _decode(args[1], v) for k, v in value.items()}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        names = {f.name for f in dataclasses.fields(kind)}
        return kind(**{k: _decode(hints[k], v) for k, v in value.items() if k in names})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and isinstance(value, int):
        return float(value)
    return value


def _decode_union(args: tuple[Any, ...], value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, dict) and "is" in value:
        chosen = next(a for a in args if getattr(a, "__name__", "") == value["is"])
        return _decode(chosen, value)
    return _decode(next(a for a in args if a is not type(None)), value)
