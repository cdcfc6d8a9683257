r"""Whether two cleaned answers say the same: shape first, exact numbers next, algebra last.

    same("(3, 4]", "(3.0, 4]")   brackets, order and every element         True
    same("1,-2", "-2, 1")        a bare list, or a set, in any order       True
    same("5", "1, 2, 3, 4, 5")   a list is not a number: no partial credit False

Two plain numbers are compared exactly, whatever their spelling. What is neither a list nor a number goes to
`leaf`, the computer algebra. `\pm` stands for two values; a base in the index is part of the number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spade_evals.grade.latex import plain_number

Leaf = Callable[[str, str], bool]
"""(reference, answer): are the two expressions equal? May raise for what it cannot read."""

MAX_ITEMS = 64
"""Elements of a list that are matched; more is a dump."""

_OPEN, _CLOSE = "([{", ")]}"
_NAME = re.compile(r"(?:[A-Za-z]|\\[a-z]+)(?:_(?:\w|\{\w+\}))?(?:\s*\(\s*\w+\s*\))?'?|[A-Z]{2,4}")
_BASE = re.compile(r"\(?([0-9A-Fa-f]+)\)?\s*_\s*\{?\s*(\d+)\s*\}?")
_WORDS = re.compile(r"[A-Za-z]{3,}(?:[ '-][A-Za-z]+)*|\([A-Za-z]\)")
_ORDER = re.compile(r"\\(?:leqslant|geqslant|leq|geq|le|ge|lt|gt)(?![a-zA-Z])|[<>]=?")
_VARIABLE = re.compile(r"[A-Za-z]")
_MATRIX = re.compile(r"\\begin\{[a-zA-Z]*(?:matrix|array)\}(?:\{[^{}]*\})?(.*)\\end\{[a-zA-Z]*\}", re.DOTALL)
_COMMA = re.compile(r"[,;]")
_PLUS_MINUS = re.compile(r"\\pm(?![a-zA-Z])")
_EQUALS = re.compile(r"(?<![<>!:\\])=(?!=)|\\equiv(?![a-zA-Z])")


@dataclass(frozen=True, slots=True)
class Group:
    """Elements in brackets (`kind` is the pair), without (`bag`), or joined by a union sign (`union`)."""

    kind: str
    items: tuple[str, ...]


def same(reference: str, answer: str, leaf: Leaf) -> bool:
    """Whether `answer` equals `reference`, both cleaned. Raises what `leaf` raises."""
    if not answer:
        return False
    left, right = _without_membership(reference), _without_membership(answer)
    number, other = plain_number(left), plain_number(right)
    if number is not None and other is not None:
        return number == other
    if (based := _BASE.fullmatch(left)) is not None:
        return _same_based(based, right)
    if _WORDS.fullmatch(left):  # `east`, `(C)`; three letters may also be a product
        return _letters(left) == _letters(right) or (len(left) == 3 and left.islower() and leaf(left, right))
    group = _group(left)
    if group is not None:
        return _same_group(group, right, leaf)
    if (answered := _group(right)) is not None and len(answered.items) != 1:
        return False
    return _same_expression(left, right, leaf)


# --- words, bases --------------------------------------------------------------------------------------


def _letters(text: str) -> str:
    return re.sub(r"[^a-z]", "", text.lower())


def _same_based(reference: re.Match[str], answer: str) -> bool:
    """The same digits in the same base; the base may be left out, as the question names it."""
    given = _BASE.fullmatch(answer)
    digits, base = (given[1], given[2]) if given else (answer, reference[2])
    return digits.lstrip("0").upper() == reference[1].lstrip("0").upper() and base == reference[2]


# --- lists, tuples, sets, intervals, unions ------------------------------------------------------------


def _group(text: str) -> Group | None:
    if "\\begin" in text:
        return None
    if len(parts := split_top(text, re.compile(r"\\cup(?![a-zA-Z])"))) > 1:
        return Group("union", tuple(parts))
    braces = re.fullmatch(r"\\?\{(.*?)\\?\}", text)
    if braces is not None and _balanced(braces[1]):
        return _bag(split_top(braces[1], _COMMA))
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and _balanced(text[1:-1]):
        parts = split_top(text[1:-1], _COMMA)
        if len(parts) > 1:
            return Group(text[0] + text[-1], tuple(parts))
        return _group(parts[0]) if text[0] + text[-1] == "()" else None
    bag = _bag(split_top(text, _COMMA))
    return bag if len(bag.items) > 1 else None


def _bag(parts: Sequence[str]) -> Group:
    items: list[str] = []
    for part in parts:
        if len(_PLUS_MINUS.findall(part)) == 1:
            items += [_PLUS_MINUS.sub("+", part).removeprefix("+").strip(), _PLUS_MINUS.sub("-", part)]
        else:
            items.append(part)
    return Group("bag", tuple(items))


def split_top(text: str, at: re.Pattern[str]) -> list[str]:
    """Pieces of `text` between the matches of `at` that lie outside all brackets, stripped."""
    depth, start, pieces = 0, 0, []
    position = 0
    while position < len(text):
        char = text[position]
        depth += (char in _OPEN) - (char in _CLOSE)
        match = at.match(text, position) if depth == 0 else None
        if match is not None and match.end() > position:
            pieces.append(text[start:position].strip())
            position = start = match.end()
        else:
            position += 1
    return [*pieces, text[start:].strip()]


def _balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char in _OPEN) - (char in _CLOSE)
        if depth < 0:
            return False
    return depth == 0


def _same_group(reference: Group, answer: str, leaf: Leaf) -> bool:
    answer = value_of(answer)  # (x, y) = (2, 4)
    given = _group(answer) or _order_group(answer)
    if reference.kind == "bag" and given is None and plain_number(answer) is not None:
        given = Group("bag", tuple(split_top(answer, _COMMA)))  # 100,200 is two numbers where two are asked
    if given is None:
        if len(reference.items) == 1:
            return same(reference.items[0], answer, leaf)
        return False
    if reference.kind == "union" and given.kind == "bag":
        given = Group("union", given.items)  # x < 2 or x > 3
    if (
        given.kind != reference.kind
        or len(given.items) != len(reference.items)
        or len(given.items) > MAX_ITEMS
    ):
        return False
    if reference.kind in ("bag", "union"):
        return _match_all(reference.items, given.items, leaf)
    return all(same(left, right, leaf) for left, right in zip(reference.items, given.items, strict=True))


def _match_all(references: Sequence[str], answers: Sequence[str], leaf: Leaf) -> bool:
    """Whether the two lists are equal in some order. Equality is transitive, so greedy matching is exact."""
    free = list(answers)
    for reference in references:
        found = next((at for at, answer in enumerate(free) if same(reference, answer, leaf)), None)
        if found is None:
            return False
        free.pop(found)
    return True


def _without_membership(text: str) -> str:
    r"""`x \in [-2, 7]` is its interval; `(5)` is 5."""
    match = re.match(r"[A-Za-z]\s*\\in(?![a-zA-Z])", text)
    text = text[match.end() :].strip() if match else text
    if text[:1] == "(" and text[-1:] == ")" and _balanced(text[1:-1]) and not _WORDS.fullmatch(text):
        inner = text[1:-1].strip()
        return text if len(split_top(inner, _COMMA)) > 1 else inner
    return text


def _order_group(text: str) -> Group | None:
    r"""`-2 \le x \le 7` and `x > 5` as the interval they describe; None for anything else."""
    signs = _ORDER.findall(text)
    parts = [part.strip() for part in _ORDER.split(text)]
    if not 1 <= len(signs) <= 2 or len({_less(sign) for sign in signs}) != 1:
        return None
    if not _less(signs[0]):
        signs, parts = signs[::-1], parts[::-1]
    if len(signs) == 1 and _VARIABLE.fullmatch(parts[0]):
        signs, parts = ["<", *signs], ["-\\infty", *parts]
    elif len(signs) == 1:
        signs, parts = [*signs, "<"], [*parts, "\\infty"]
    if not _VARIABLE.fullmatch(parts[1]):
        return None
    kind = ("[" if _closed(signs[0]) else "(") + ("]" if _closed(signs[1]) else ")")
    return Group(kind, (parts[0], parts[2]))


def _less(sign: str) -> bool:
    return sign.startswith(("<", "\\l"))


def _closed(sign: str) -> bool:
    return "=" in sign or "e" in sign


# --- single expressions --------------------------------------------------------------------------------


def _same_expression(reference: str, answer: str, leaf: Leaf) -> bool:
    """Expressions and equations: `x=5` is 5, the value stands last, names must agree if both are given."""
    left, right = split_top(reference, _EQUALS), split_top(_before_approximation(answer), _EQUALS)
    named = len(left) == 2 and _NAME.fullmatch(left[0]) is not None
    if len(left) == 1 and len(right) > 1:
        return same(reference, right[-1], leaf)
    if named and len(right) == 1:
        return same(left[1], right[0], leaf)
    if named and _NAME.fullmatch(right[0]):
        return _plain_name(left[0]) == _plain_name(right[0]) and same(left[1], right[-1], leaf)
    return leaf(reference, "=".join(right))


def _plain_name(name: str) -> str:
    return re.sub(r"[{}\s]", "", name)


def _before_approximation(text: str) -> str:
    r"""`\frac13 \approx 0.33` states the exact value first."""
    parts = [part.strip() for part in re.split(r"\\(?:approx|simeq|doteq)(?![a-zA-Z])", text)]
    return next((part for part in parts if part), text)


# --- for tasks that ask for numbers --------------------------------------------------------------------


def value_of(text: str) -> str:
    r"""What stands after the last equals sign of a cleaned answer: `x = 2 + 3 = 5` is 5; lists stay whole."""
    if len(split_top(text, _COMMA)) > 1:
        return text
    return split_top(_before_approximation(text), _EQUALS)[-1]


def elements(text: str) -> list[str]:
    """The elements of a list, tuple, set, row or column; anything else is a list of one."""
    text = value_of(text)
    if (matrix := _MATRIX.fullmatch(text)) is not None:
        return [part.strip() for part in re.split(r"\\\\|&", matrix[1]) if part.strip()]
    group = _group(text)
    if group is not None:
        return list(group.items)
    single = re.fullmatch(r"[\[(](.*)[\])]", text)
    return [single[1].strip() if single and _balanced(single[1]) else text]
