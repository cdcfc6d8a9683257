"""Whether calls are those that an ACEBench item of the single-answer categories asks for.

`official` follows the published checker: as many calls as annotated, and each annotated call has one of that
name that fits it. Strings have to contain the annotated ones, case, blanks and punctuation aside; numbers and
truth values are not compared at all, nor is anything whose annotation has another type than the function's
description says; arguments that are annotated but not required may be missing; an empty list or mapping never
fits. `strict` keeps the rule for strings, compares every value, and pairs each call with one annotation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spade_evals.grade.calls import Call

TYPES: Final[Mapping[str, type]] = {
    "string": str,
    "any": str,
    "integer": int,
    "int": int,
    "number": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "list": list,
    "tuple": list,
    "object": dict,
    "dict": dict,
}
"""Words of the descriptions. A `number` is a whole number to the published checker."""

NESTED: Final = ("array", "tuple", "object")
"""Types whose inside the published checker looks at."""

Function = Mapping[str, Any]
Annotation = Mapping[str, Mapping[str, Any]]
"""Function name, `_1`, `_2` behind it where one is called repeatedly -> annotated arguments."""


def plain_text(text: str) -> str:
    """A string as it is compared."""
    return re.sub(r"[ ,./\-_*^]", "", text).lower().replace("'", '"')


def called(name: str) -> str:
    """The function behind a key of an annotation."""
    return re.sub(r"_\d+$", "", name)


def fits(calls: Sequence[Call], annotation: Annotation, functions: Sequence[Function], strict: bool) -> str:
    """What is wrong with the calls in a few words; "" when nothing is."""
    if len(calls) != len(annotation):
        return f"{len(calls)} calls instead of {len(annotation)}"
    if Counter(call.name for call in calls) != Counter(map(called, annotation)):
        return f"calls of {', '.join(sorted({call.name for call in calls}))}"
    left = list(calls)
    for key, wanted in annotation.items():
        found, why = None, ""
        for call in left:
            if call.name != called(key):
                continue
            why = _call_differs(call, key, wanted, functions, strict)
            if not why:
                found = call
                break
        if found is None:
            return f"{called(key)}: {why}"
        if strict:
            left.remove(found)
    return ""


def _call_differs(
    call: Call, key: str, wanted: Mapping[str, Any], functions: Sequence[Function], strict: bool
) -> str:
    if strict:
        return _strictly(call.kwargs, wanted)
    function = next((f for f in functions if f["name"] in key), None)
    if function is None:
        return "no such function is described"
    return _officially(call.kwargs, wanted, function)


# --- strict --------------------------------------------------------------------------------------------


def _strictly(given: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    missing = [name for name, value in wanted.items() if name not in given and value != ""]
    if missing:
        return f"{missing[0]} is missing"
    for name, value in given.items():
        if name not in wanted:
            return f"{name} is not asked for"
        if wanted[name] != "" and not same(wanted[name], value):
            return f"{name} differs"
    return ""


def same(wanted: Any, given: Any) -> bool:
    """Equal, where a string has to contain the annotated one, case, blanks and punctuation aside."""
    if isinstance(wanted, str):
        return isinstance(given, str) and plain_text(wanted) in plain_text(given)
    if isinstance(wanted, bool) or isinstance(given, bool) or wanted is None:
        return wanted is _truth(given)
    if isinstance(wanted, int | float):
        return isinstance(given, int | float) and wanted == given
    if isinstance(wanted, dict):
        return (
            isinstance(given, dict)
            and set(wanted) == set(given)
            and all(same(value, given[name]) for name, value in wanted.items())
        )
    return (
        isinstance(given, list | tuple)
        and len(wanted) == len(given)
        and all(same(one, other) for one, other in zip(wanted, given, strict=True))
    )


def _truth(value: Any) -> Any:
    """`true` and `false` as JSON writes them are read as names, and names as text."""
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


# --- official ------------------------------------------------------------------------------------------


def _officially(given: Mapping[str, Any], wanted: Mapping[str, Any], function: Function) -> str:
    described = function["parameters"]
    if not given and not described:
        return ""
    if not given or not described:
        return "arguments where none belong, or none"
    if wanted == described["properties"]:
        return ""
    if not wanted:
        return "arguments where none belong"
    missing = [name for name in described.get("required", ()) if name not in given]
    if missing:
        return f"{missing[0]} is missing"
    for name, value in given.items():
        if name not in described["properties"] or name not in wanted:
            return f"{name} is not asked for"
        if not _argument_fits(value, wanted[name], described["properties"][name]):
            return f"{name} differs"
    return ""


def _argument_fits(value: Any, wanted: Any, described: Mapping[str, Any]) -> bool:
    word = str(described["type"])
    kind = TYPES.get(word)
    inner = _inner(described) if word in NESTED else None
    if word == "float" and type(value) is int:
        value = float(value)
    fits_type, compared = _type_fits(value, wanted, kind, inner)
    if not fits_type or not compared:
        return fits_type
    if kind is dict:
        return _mapping_fits(value, wanted)
    if kind is list and inner is dict:
        return len(value) == len(wanted) and all(
            _mapping_fits(one, other) for one, other in zip(value, wanted, strict=True)
        )
    if kind is str:
        return plain_text(wanted) in plain_text(value)
    if kind is list:
        return list(map(_comparable, value)) == list(map(_comparable, wanted))
    return True  # numbers and truth values: the type is enough


def _inner(described: Mapping[str, Any]) -> type | None:
    items = described.get("items")
    return TYPES.get(str(items["type"]), str) if isinstance(items, Mapping) and "type" in items else dict


def _type_fits(value: Any, wanted: Any, kind: type | None, inner: type | None) -> tuple[bool, bool]:
    """Whether the type is right, and whether the value is to be compared at all."""
    value = _truth(value)
    other = wanted != "" and type(wanted) is not kind
    failed = False
    if type(value) is kind:
        if inner is None:
            return True, not other
        if any(_inside_fits(value, one, inner) for one in wanted):
            return True, not other
        failed = True
    if wanted != "" and (type(value) is type(wanted) or value == wanted):
        return not failed, False
    return False, False


def _inside_fits(value: Any, one: Any, inner: type) -> bool:
    return not isinstance(one, list) or all(_type_fits(item, one, inner, None)[0] for item in value)


def _mapping_fits(value: Any, wanted: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(wanted, dict) or len(value) != len(wanted):
        return False
    for name, item in value.items():
        if name not in wanted:
            return False
        if isinstance(wanted[name], dict):
            if not _mapping_fits(_truth(item), wanted[name]):
                return False
        elif str(_comparable(wanted[name])) not in str(_comparable(_truth(item))):
            return False
    return True


def _comparable(value: Any) -> Any:
    return plain_text(value) if isinstance(value, str) else value
