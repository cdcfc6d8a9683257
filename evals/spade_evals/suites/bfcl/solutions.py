"""Right answers to single-turn questions, made out of the possible ones; for the oracle and for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spade_evals.grade.calls import Call

Doc = dict[str, Any]


def expected_calls(
    functions: Sequence[Doc], answers: Sequence[Mapping[str, Any]], language: str
) -> list[Call]:
    """One right call for each expected one, with the first value of every parameter that must be given."""
    calls = []
    for answer in answers:
        name, parameters = next(iter(answer.items()))
        doc = next(f for f in functions if f["name"] == name)
        described = doc["parameters"]["properties"]
        needed = doc["parameters"]["required"]
        given = {k: v for k, v in parameters.items() if k in described and ("" not in v or k in needed)}
        calls.append(Call(name, (), {k: _value(v, described[k], language) for k, v in given.items()}))
    return calls


def _value(options: Sequence[Any], described: Doc, language: str) -> Any:
    """The first value that is not "left out"; source text where the language wants it."""
    value = next((option for option in options if option != ""), "")
    kind = described["type"]
    if language == "java":
        return java_source(value, kind, (described.get("items") or {}).get("type"))
    if language == "javascript":
        return javascript_source(value, kind)
    if kind == "dict" and isinstance(value, dict):
        return _plain(value)
    if isinstance(value, list):
        return [_plain(v) if isinstance(v, dict) else v for v in value]
    return value


def _plain(options: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """A dict of the first values, without keys that may be left out."""
    return {k: next((o for o in v if o != ""), "") for k, v in options.items() if "" not in v}


def java_source(value: Any, kind: str, inner: str | None = None) -> str:
    """Java source text of a value of the declared type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind == "long" and isinstance(value, int):
        return f"{value}L"
    if kind == "float" and isinstance(value, int | float):
        return f"{float(value)}f"
    if isinstance(value, list):
        if kind == "Array":  # of strings without quotes: the conversion keeps them, so quotes never match
            return f"new Object[]{{{', '.join(_java_item(v, 'any') for v in value)}}}"
        return f"new ArrayList<>(Arrays.asList({', '.join(_java_item(v, inner) for v in value)}))"
    if isinstance(value, dict):
        puts = " ".join(f'put("{k}", {_java_item(v, None)});' for k, v in _plain(value).items())
        return f"new HashMap<String, Object>() {{{{ {puts} }}}}"
    return str(value)


def _java_item(value: Any, inner: str | None) -> str:
    if isinstance(value, str):
        return value if inner in ("any", "char") else f'"{value}"'
    return java_source(value, inner or "")


def javascript_source(value: Any, kind: str) -> str:
    """JavaScript source text of a value of the declared type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind == "Bigint" and isinstance(value, int):
        return f"{value}n"
    if isinstance(value, list):
        return f"[{', '.join(_javascript_item(v) for v in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k}: {_javascript_item(v)}' for k, v in _plain(value).items())}}}"
    return str(value)


def _javascript_item(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else javascript_source(value, "")
