"""Java and JavaScript values as source text: reading calls that hold them, and what the text stands for.

In these categories every argument is a text of the language, such as `new int[]{1, 2}` or `{'a': 1}`. It is
converted by its declared type as upstream does, with patterns and not with a parser of the language; what
does not match stays text, and is then of the wrong type or value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from spade_evals.grade.calls_reader import Reader, Reading, read_with
from spade_evals.grade.characters import NoCall

JAVA_TYPES: Final[Mapping[str, type]] = {
    "byte": int, "short": int, "integer": int, "float": float, "double": float, "long": int,
    "boolean": bool, "char": str, "Array": list, "ArrayList": list, "Set": set, "HashMap": dict,
    "Hashtable": dict, "Queue": list, "Stack": list, "String": str, "any": str,
}  # fmt: skip
JAVASCRIPT_TYPES: Final[Mapping[str, type]] = {
    "String": str, "integer": int, "float": float, "Bigint": int, "Boolean": bool, "dict": dict,
    "array": list, "any": str,
}  # fmt: skip


# --- calls ---------------------------------------------------------------------------------------------

_GENERIC = re.compile(r"<[\w\s,.?<>\[\]]*>(?=\s*[({\[])")
_QUOTES = ("'", '"', "`")


def read_source_calls(text: str) -> Reading:
    """`[f(a=..., b=...)]` with source text as arguments; a string in quotes loses them."""
    return read_with(_SourceReader(text, False))


class _SourceReader(Reader):
    """Takes every argument as it stands."""

    def value_or_note(self) -> Any:
        """The source text up to the next comma or the end of the call."""
        self.space()
        start = self.at
        self.skip(",)")
        if self.at >= len(self.text):
            raise NoCall
        return _without_quotes(self.text[start : self.at].strip())

    def string(self) -> str | None:
        """A string or a list of type arguments, whose commas divide nothing."""
        found = _GENERIC.match(self.text, self.at)
        if found is not None and re.match(r"\w", self.text[self.at - 1 : self.at]):
            start, self.at = self.at, found.end()
            return self.text[start : self.at]
        if self.text[self.at : self.at + 1] != "`":
            return super().string()
        end = self.text.find("`", self.at + 1)
        if end < 0:
            raise NoCall
        start, self.at = self.at, end + 1
        return self.text[start : self.at]


def _without_quotes(text: str) -> str:
    quoted = len(text) > 1 and text[0] in _QUOTES and text[-1] == text[0]
    return text[1:-1] if quoted else text


# --- Java ----------------------------------------------------------------------------------------------

_INTEGER = re.compile(r"-?\d+")
_LONG = re.compile(r"(-?\d+)[lL]")
_DOUBLE = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_FLOAT = re.compile(rf"({_DOUBLE.pattern})[fF]")
_AS_LIST = re.compile(r"new\s+ArrayList<\w*>\(Arrays\.asList\((.+?)\)\)")
_ADDS = re.compile(r"new\s+ArrayList<\w*>\(\)\s*\{\{\s*(.+?)\s*\}\}", re.S)
_NO_LIST = re.compile(r"new\s+ArrayList<\w*>\(\)")
_ARRAY = re.compile(r"new\s+\w+\[\]\s*\{(.*?)\}")
_MAP = re.compile(r"new\s+HashMap<.*?>\s*\(\)\s*\{\s*\{?\s*(.*?)\s*\}?\s*\}", re.S)
_NO_MAP = re.compile(r"new\s+HashMap<.*?>\s*\(\)")


def java_value(text: str, kind: str, inner: str | None = None) -> Any:
    """The value of a Java text of the declared type; the text where it is not of that form."""
    if kind in ("byte", "short", "integer"):
        return int(text) if _INTEGER.fullmatch(text) else text
    if kind == "long":
        return int(found.group(1)) if (found := _LONG.fullmatch(text)) else text
    if kind == "float":
        return float(found.group(1)) if (found := _FLOAT.fullmatch(text)) else text
    if kind == "double":
        return float(text) if _DOUBLE.fullmatch(text) else text
    if kind == "boolean":
        return text == "true" if text in ("true", "false") else text
    if kind == "ArrayList":
        return _java_list(text, inner)
    if kind == "Array":
        found = _ARRAY.search(text)
        return text if found is None else [_java_item(p, inner) for p in _parts(found.group(1))]
    if kind == "HashMap":
        return _java_map(text)
    if kind in ("Set", "Hashtable", "Queue", "Stack"):
        raise ValueError(f"no reading of a Java {kind}")
    return text


def _java_list(text: str, inner: str | None) -> Any:
    if (found := _AS_LIST.search(text)) is not None:
        return [_java_element(part.strip(), inner) for part in found.group(1).split(",")]
    if (found := _ADDS.search(text)) is not None:
        return [_java_element(p.strip(), inner) for p in re.findall(r"add\((.+?)\)", found.group(1))]
    return [] if _NO_LIST.search(text) else text


def _java_element(text: str, inner: str | None) -> Any:
    if inner in ("char", "String"):
        return text[1:-1]
    return _java_item(text, inner)


def _java_item(text: str, inner: str | None) -> Any:
    return java_value(text, inner) if inner else _java_guess(text)


def _java_map(text: str) -> Any:
    found = _MAP.search(text)
    if found is None:
        return {} if _NO_MAP.search(text) else text
    pairs = re.findall(r"put\(\"(.*?)\",\s*(.*?)\)", found.group(1))
    return {key: _java_guess(value.strip()) for key, value in pairs}


def _java_guess(text: str) -> Any:
    """The value of a Java text whose type nobody says."""
    if text in ("true", "false"):
        return text == "true"
    if text.startswith('"') and text.endswith('"'):
        return text[1:-1]
    if (found := _LONG.fullmatch(text)) is not None:
        return int(found.group(1))
    if (found := _FLOAT.fullmatch(text)) is not None:
        return float(found.group(1))
    return _number_or_text(text)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _number_or_text(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


# --- JavaScript ----------------------------------------------------------------------------------------

_DECIMAL = re.compile(r"-?\d+(\.\d+)?")
_BIG = re.compile(r"(-?\d+)n")
_GRID = re.compile(r"\[\s*\[.*?\]\s*(,\s*\[.*?\]\s*)*\]|\bnew\s+Array\(\s*\[.*?\]\s*(,\s*\[.*?\]\s*)*\)")
_LIST = re.compile(r"\[(.*?)\]|\bnew\s+Array\((.*?)\)")
_OBJECT = re.compile(r"\{(.*?)\}")
_PAIR = re.compile(r"([^:]+):\s*(.*?)(?:,\s*(?=[^,]+:)|$)")


def javascript_value(text: str, kind: str, inner: str | None = None) -> Any:
    """The value of a JavaScript text of the declared type; the text where it is not of that form."""
    if kind == "String":
        quoted = any(text.startswith(q) and text.endswith(q) for q in ("'", '"'))
        return text[1:-1] if quoted else text
    if kind == "integer":
        return int(text) if _INTEGER.fullmatch(text) else text
    if kind == "float":
        return float(text) if _DECIMAL.fullmatch(text) else text
    if kind == "Bigint":
        return int(found.group(1)) if (found := _BIG.fullmatch(text)) else text
    if kind == "Boolean":
        return text == "true" if text in ("true", "false") else text
    if kind == "dict":
        return _javascript_object(text.strip())
    if kind == "array":
        return _javascript_list(text.strip(), inner)
    return text


def _javascript_list(text: str, inner: str | None) -> Any:
    if (found := _GRID.match(text)) is not None:
        rows = re.findall(r"\[(.*?)\]", found.group(0))
        return [[_javascript_guess(v) for v in row.strip().removeprefix("[").split(",")] for row in rows]
    found = _LIST.match(text)
    if found is None:
        return text
    body = (found.group(1) if found.group(1) is not None else found.group(2)).strip()
    return [_javascript_item(part.strip(), inner) for part in body.split(",")] if body else []


def _javascript_item(text: str, inner: str | None) -> Any:
    return javascript_value(text, inner) if inner else _javascript_guess(text)


def _javascript_object(text: str) -> Any:
    if text == "{}":
        return {}
    found = _OBJECT.match(text)
    if found is None:
        return text
    out: dict[str, Any] = {}
    for key, value in _PAIR.findall(found.group(1)):
        key, value = key.strip().strip("'\""), value.strip()
        if value.startswith("[") and value.endswith("]"):
            out[key] = _javascript_list(value, None)
        elif value.startswith("{") and value.endswith("}"):
            out[key] = _javascript_object(value)
        else:
            out[key] = _javascript_guess(value.strip("'\""))
    return out


def _javascript_guess(text: str) -> Any:
    """The value of a JavaScript text whose type nobody says."""
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    if any(text.startswith(q) and text.endswith(q) for q in ('"', "'")):
        return text[1:-1]
    return _number_or_text(text)
