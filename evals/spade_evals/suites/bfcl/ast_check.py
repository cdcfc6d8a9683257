"""Checks the calls of a single answer against the possible ones; nothing is run.

Verdicts are those of upstream's checker (`ast_checker` of `bfcl-eval`), whose error words are used, quirks
included: a value of the type of the reference answers passes for one of the declared type ("a variable"), and
strings are compared without case and without blanks and `,./-_*^`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spade_evals.grade.calls import Call
from spade_evals.suites.bfcl.source_text import JAVA_TYPES, JAVASCRIPT_TYPES, java_value, javascript_value

Doc = dict[str, Any]
Answer = dict[str, dict[str, list[Any]]]
"""One expected call: function -> parameter -> values that are right; "" means it may be left out."""

PYTHON_TYPES: Final[Mapping[str, type]] = {
    "string": str, "integer": int, "float": float, "boolean": bool, "array": list, "tuple": list,
    "dict": dict, "any": str,
}  # fmt: skip
TYPES: Final = {"python": PYTHON_TYPES, "java": JAVA_TYPES, "javascript": JAVASCRIPT_TYPES}
_NESTED: Final = {
    "python": ("array", "tuple"), "java": ("Array", "ArrayList"), "javascript": ("array",),
}  # fmt: skip
MAX_SOURCE: Final = 4_000
"""Characters of source text that are converted; no reference comes near."""
_LEFT_OUT: Final = re.compile(r"[ \,\.\/\-\_\*\^]")


class Wrong(Exception):
    """The calls are not right; `code` is upstream's word for it."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code


def check_calls(
    docs: Sequence[Doc], calls: Sequence[Call], answers: Sequence[Answer], language: str, category: str
) -> None:
    """Raises Wrong unless the calls are the expected ones, in any order for parallel categories."""
    if "parallel" in category:
        _check_parallel(docs, calls, answers, language)
        return
    multiple = "multiple" in category
    kind = "multiple_function_checker" if multiple else "simple_function_checker"
    if len(calls) != len(answers):
        raise Wrong(f"{kind}:wrong_count", f"{len(calls)} calls")
    _check_call(_doc_of(docs, answers[0]) if multiple else docs[0], calls[0], answers[0], language)


def _check_parallel(
    docs: Sequence[Doc], calls: Sequence[Call], answers: Sequence[Answer], language: str
) -> None:
    if len(calls) != len(answers):
        raise Wrong("parallel_function_checker_no_order:wrong_count", f"{len(calls)} calls")
    left = list(calls)
    for answer in answers:
        doc = _doc_of(docs, answer)
        for call in left:
            try:
                _check_call(doc, call, answer, language)
            except Wrong:
                continue
            left.remove(call)
            break
        else:
            raise Wrong("parallel_function_checker_no_order:cannot_find_match", next(iter(answer)))


def _doc_of(docs: Sequence[Doc], answer: Answer) -> Doc:
    name = next(iter(answer))
    found = next((doc for doc in docs if doc["name"] == name), None)
    if found is None:
        raise KeyError(f"no function {name} in the question")
    return found


def _check_call(doc: Doc, call: Call, answer: Answer, language: str) -> None:
    expected = next(iter(answer.values()))
    described = doc["parameters"]["properties"]
    if call.name != doc["name"]:
        raise Wrong("simple_function_checker:wrong_func_name", call.name)
    for name in doc["parameters"]["required"]:
        if name not in call.kwargs:
            raise Wrong("simple_function_checker:missing_required", name)
    for name, value in call.kwargs.items():
        if name not in described or name not in expected:
            raise Wrong("simple_function_checker:unexpected_param", name)
        _check_argument(name, value, expected[name], described[name], language)
    for name, options in expected.items():
        if name not in call.kwargs and "" not in options:
            raise Wrong("simple_function_checker:missing_optional", name)


def _check_argument(name: str, value: Any, options: list[Any], described: Doc, language: str) -> None:
    kind = described["type"]
    types = TYPES[language]
    wanted = types[kind]
    inner = types[described["items"]["type"]] if kind in _NESTED[language] else None
    if language != "python":
        if not isinstance(value, str):
            raise Wrong("type_error:java" if language == "java" else "type_error:js", name)
        value = _value_of(value, kind, described, language)
    elif kind == "tuple" and isinstance(value, tuple):
        value = list(value)
    elif kind == "float" and type(value) is int:
        value = float(value)
    variable = _check_type(name, value, options, wanted, inner)
    if not variable and wanted is dict:
        _check_dict(name, value, options)
    elif not variable and wanted is list and inner is dict:
        _check_dicts(name, value, options)
    elif not variable and wanted is str:
        if standard(value) not in [standard(o) for o in options if isinstance(o, str)]:
            raise Wrong("value_error:string", name)
    elif not variable and wanted is list:
        if [_standard_any(v) for v in value] not in [[_standard_any(v) for v in o] for o in options]:
            raise Wrong("value_error:list/tuple", name)
    elif value not in options:
        raise Wrong("value_error:others", name)


def _value_of(text: str, kind: str, described: Doc, language: str) -> Any:
    """The value that source text of a language stands for; the text itself where it cannot be read."""
    inner = described["items"]["type"] if kind in _NESTED[language] else None
    if len(text) > MAX_SOURCE:
        return text
    return java_value(text, kind, inner) if language == "java" else javascript_value(text, kind, inner)


def _check_type(name: str, value: Any, options: list[Any], wanted: type, inner: type | None) -> bool:
    """Whether the value is taken for a variable. Raises Wrong for a value of the wrong type."""
    known = next((type(o) for o in options if o != ""), None)
    variable = known is not None and known is not wanted
    if type(value) is wanted:
        if inner is None:
            return variable
        assert isinstance(value, list)  # only lists have an inner type
        if any(_fits_inside(name, value, option, inner) for option in options):
            return variable
        raise Wrong("type_error:nested" if known is wanted else "type_error:simple", name)
    if known is not None and type(value) is known:
        return True
    raise Wrong("type_error:simple", name)


def _fits_inside(name: str, values: list[Any], option: Any, inner: type) -> bool:
    """Whether each value of a list has the inner type, or the type of the values in `option`."""
    if not isinstance(option, list):
        return True
    try:
        for value in values:
            _check_type(name, value, option, inner, None)
    except Wrong:
        return False
    return True


def standard(text: str) -> str:
    """Text as it is compared."""
    return _LEFT_OUT.sub("", text).lower().replace("'", '"')


def _standard_any(value: Any) -> Any:
    return standard(value) if isinstance(value, str) else value


def _check_dict(name: str, value: dict[Any, Any], options: list[Any]) -> None:
    code = "dict_checker:unclear"
    for option in options:
        if option == "":
            continue
        code = _dict_problem(value, option)
        if not code:
            return
    raise Wrong(code, name)


def _dict_problem(value: dict[Any, Any], option: Mapping[str, list[Any]]) -> str:
    """Why a dict is not the expected one; "" if it is. A missing key outranks a wrong value."""
    missing = any(key not in value and "" not in right for key, right in option.items())
    for key, given in value.items():
        if key not in option:
            return "value_error:dict_key"
        if _standard_any(given) not in [_standard_any(right) for right in option[key]]:
            return "value_error:dict_key" if missing else "value_error:dict_value"
    return "value_error:dict_key" if missing else ""


def _check_dicts(name: str, values: list[Any], options: list[Any]) -> None:
    code = "list_dict_checker:unclear"
    for option in options:
        if len(values) != len(option):
            code = "value_error:list_dict_count"
            continue
        try:
            for value, one in zip(values, option, strict=True):
                if not isinstance(value, dict):
                    raise Wrong("type_error:nested", name)
                _check_dict(name, value, [one])
        except Wrong as wrong:
            code = wrong.code
            continue
        return
    raise Wrong(code, name)
