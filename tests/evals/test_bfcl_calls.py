"""Reading calls out of text: literals only, refusals with a code, nothing that a text can break."""

from __future__ import annotations

import keyword
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_evals.grade.calls import MAX_CALLS, Call, RefusalCode, Refused
from spade_evals.grade.calls_reader import read_calls

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
CALLS = st.builds(
    Call, NAMES, st.lists(PLAIN, max_size=2).map(tuple), st.dictionaries(NAMES, PLAIN, max_size=3)
)


def exact(value: Any) -> str:
    """Tells 1 from True and 1.0, and -0.0 from 0.0."""
    return repr(value)


@given(st.lists(CALLS, min_size=1, max_size=4))
def test_what_is_written_is_read_back(calls: list[Call]) -> None:
    reading = read_calls(f"[{', '.join(map(str, calls))}]")
    assert reading.refused is None
    assert exact(reading.calls) == exact(tuple(calls))


@given(st.text(alphabet="f(a=1,'\"[]{}) \\\n.:_-x", max_size=60) | st.text(max_size=60))
def test_no_text_raises(text: str) -> None:
    for given_text in (text, f"f({text}", f"[f(a={text})]"):
        reading = read_calls(given_text)
        assert not (reading.calls and reading.refused)


@given(st.text(alphabet="f(a=1,'\"[]{}) \\\n.:_-x#;\t", max_size=40))
def test_calls_are_calls_to_python_too(text: str) -> None:
    """Whatever is read as calls with literals means the same to Python's own parser."""
    import ast

    reading = read_calls(f"[f(a={text})]")
    if not reading.calls:
        return
    tree = ast.parse(f"[f(a={text})]", mode="eval").body
    assert isinstance(tree, ast.List)
    for node, call in zip(tree.elts, reading.calls, strict=True):
        assert isinstance(node, ast.Call)
        assert [ast.literal_eval(a) for a in node.args] == list(call.args)
        assert {k.arg: ast.literal_eval(k.value) for k in node.keywords} == call.kwargs


@pytest.mark.parametrize(
    "text",
    ["", "[]", "hello", "I am done (I think).", "f", "f(", "[f(a=1)", "f(a=1) and more", "[f(a=1)] done",
     "f(a=1,2)", "f(a='unclosed)", "1 + 1", "(lambda: 1)()", "f(a=1, b", "[f(a=1); g()]", "class(a=1)",
     "{'f': 1}"],
)  # fmt: skip
def test_prose_and_broken_syntax_hold_no_calls(text: str) -> None:
    reading = read_calls(text)
    assert (reading.calls, reading.refused) == ((), None)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("f(a=b)", RefusalCode.NOT_LITERAL),
        ("f(a=1 + 1)", RefusalCode.NOT_LITERAL),
        ("f(a=g(1))", RefusalCode.NOT_LITERAL),
        ("f(a=b'x')", RefusalCode.NOT_LITERAL),
        ("f(a=f'{1}')", RefusalCode.NOT_LITERAL),
        ("f(a={1, 2})", RefusalCode.NOT_LITERAL),
        ("f(a=[1][0])", RefusalCode.NOT_LITERAL),
        ("f(a=1 if 1 else 2)", RefusalCode.NOT_LITERAL),
        ("f(*[1])", RefusalCode.NOT_LITERAL),
        ("f(**{'a': 1})", RefusalCode.NOT_LITERAL),
        ("f(a=1).g()", RefusalCode.NOT_LITERAL),
        ("[f(a=1)[0], g()]", RefusalCode.NOT_LITERAL),
        ("f(a={[1]: 2})", RefusalCode.NOT_LITERAL),
        ("_f(a=1)", RefusalCode.PRIVATE_NAME),
        ("a.__b__(c=1)", RefusalCode.PRIVATE_NAME),
        ("f(a=x.__class__)", RefusalCode.PRIVATE_NAME),
        ("f(a=1)(b=__import__('os'))", RefusalCode.PRIVATE_NAME),
        ("f(__a=1)", RefusalCode.PRIVATE_NAME),
        ("f(a=1, a=2)", RefusalCode.BAD_NAME),
        ("f(a=1e400)", RefusalCode.BAD_NUMBER),
        (f"f(a={'1' * 400})", RefusalCode.BAD_NUMBER),
        (f"f(a={'[' * 30}{']' * 30})", RefusalCode.TOO_DEEP),
        (f"f(a='{'x' * 30_000}')", RefusalCode.TOO_LONG),
        (f"f(a=[{'1, ' * 3_000}])", RefusalCode.TOO_LONG),
    ],
)
def test_refusals_have_a_code(text: str, code: RefusalCode) -> None:
    reading = read_calls(text)
    assert reading.calls == ()
    assert reading.refused is not None and reading.refused.code is code


def test_one_bad_call_refuses_all() -> None:
    reading = read_calls("[f(a=1), g(b=open('x')), h()]")
    assert (reading.calls, str(reading.refused)) == ((), "not_literal: open('x')")


def test_the_number_of_calls_is_limited() -> None:
    assert len(read_calls(f"[{', '.join(['f()'] * MAX_CALLS)}]").calls) == MAX_CALLS
    refused = read_calls(f"[{', '.join(['f()'] * (MAX_CALLS + 1))}]").refused
    assert refused is not None and refused.code is RefusalCode.TOO_MANY


def test_names_may_stand_for_text() -> None:
    assert read_calls("f(a=b, c=[d], e=True)", names_as_text=True).calls == (
        Call("f", (), {"a": "b", "c": ["d"], "e": True}),
    )
    refused = read_calls("f(a=__b)", names_as_text=True).refused
    assert refused is not None and refused.code is RefusalCode.PRIVATE_NAME


@pytest.mark.parametrize(
    ("name", "kwargs", "code"),
    [
        ("__import__", {}, RefusalCode.PRIVATE_NAME),
        ("f(", {}, RefusalCode.BAD_NAME),
        ("f", {"a b": 1}, RefusalCode.BAD_NAME),
        ("f", {"__a": 1}, RefusalCode.PRIVATE_NAME),
        ("f", {"a": "x" * 30_000}, RefusalCode.TOO_LONG),
        ("f", {"a": {"b": [float("inf")]}}, RefusalCode.BAD_NUMBER),
        ("f", {"a": object()}, RefusalCode.NOT_LITERAL),
    ],
)
def test_native_calls_are_held_to_the_same(name: str, kwargs: dict[str, Any], code: RefusalCode) -> None:
    with pytest.raises(Refused) as caught:
        Call.of(name, kwargs)
    assert caught.value.refusal.code is code


HEAVY = [
    " " * 90_000, "[" + " " * 90_000 + "x", "f(x=a" + "'''\\'" * 18_000 + ")", "f(x=a " + "'" * 90_000 + ")",
    "f(x=" + "a." * 45_000 + ")", "f" + ".a" * 45_000 + "(", "f(x=a" + "(" * 90_000, "f(x='" + "\\" * 90_000,
    "f(x=" + "'a' " * 22_000 + ")", "f(x=" + "{1:" * 30_000, "f(" + "a=1," * 22_000 + ")",
    "f(a=" + "1" * 90_000, "f(x=[" + "1," * 45_000 + "])", "f(x=" + "not " * 22_000 + "1)",
    "f(x=" + "lambda:" * 12_000 + "1)",
]  # fmt: skip


@pytest.mark.parametrize("text", HEAVY, ids=lambda text: text[:12])
def test_texts_made_to_be_slow_or_deep_are_read_to_the_end(text: str) -> None:
    """No exception, no recursion error, and no hang (each takes a fraction of a second)."""
    assert read_calls(text).calls == ()
