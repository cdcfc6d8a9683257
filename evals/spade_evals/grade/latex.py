r"""An answer as written, brought to one spelling: `clean`, and what can be decided from the text alone.

    "$\dfrac43\text{ cm}^2$."  ──clean──►  "\frac{4}{3}"  ──plain_number──►  Fraction(4, 3)

Everything here is plain text work, linear in the answer but for nested wrappers; nothing is evaluated. Powers
and digits are bounded, so that no answer can make a number that does not fit into memory.
"""

from __future__ import annotations

import re
from fractions import Fraction

MAX_CHARS = 1_000
"""Longest answer read; the longest reference of the tasks here has 82 characters. More is a dump."""

_UNICODE = str.maketrans(
    {
        "−": "-", "–": "-", "×": "\\times ", "·": "\\cdot ", "÷": "/", "π": "\\pi ", "∞": "\\infty ",
        "≤": "\\le ", "≥": "\\ge ", "≠": "\\ne ", "∪": "\\cup ", "∈": "\\in ", "±": "\\pm ", "°": "",
        "²": "^2", "³": "^3", "⁻": "^-", "¹": "1", "\u00a0": " ", "\u2009": " ", "\u202f": " ", "’": "'",
        "θ": "\\theta ", "α": "\\alpha ", "≈": "\\approx ", "\n": " ", "\r": " ", "\t": " ",
    }
)  # fmt: skip
_WRAPPER = re.compile(
    r"\\(?:text|textrm|textbf|textit|textsf|texttt|mathrm|mathbf|mathit|mathsf|mathcal|mbox|hbox|operatorname|boldsymbol)"
    r"\s*\{([^{}]*)\}"
)
_EXPONENT = r"(?:\s*\^\s*(?:\{[^{}]*\}|-?\w))?"
_UNIT = re.compile(_WRAPPER.pattern + _EXPONENT)
_FUNCTIONS = frozenset(re.findall(r"\w+", "sin cos tan cot sec csc arcsin arccos arctan ln log exp gcd lcm"))
_OPERATORS = frozenset({"min", "max", "det"})  # in other wrappers `min` is the minute
_KEPT = frozenset({"e", "i", "d"})
_BARE_UNITS = re.compile(
    r"(?<=[\d}.)])\s*(?:cm|mm|km|ft|in|inch(?:es)?|feet|foot|yards?|miles?|meters?|metres?|units?|cents?|dollars?|"
    r"degrees?|seconds?|minutes?|hours?|days?|weeks?|months?|years?|people|percent|mph|kg|grams?|square\s+\w+|cubic\s+\w+)"
    r"(?:\s*\^\s*\{?\d\}?)?\s*$",
    re.IGNORECASE,
)
_SPACING = re.compile(r"(?<!\\)\\[,;:!> ]|~|\\q?quad(?![a-zA-Z])|\\(?:thin|med|thick)space(?![a-zA-Z])")
_SIZES = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?)(?![a-zA-Z])\.?|\\(?:displaystyle|textstyle|limits|nolimits)(?![a-zA-Z])"
)
_DECORATION = re.compile(r"\\(?:text)?color\s*\{[^{}]*\}|\\underline(?![a-zA-Z])")
_MODULUS = re.compile(r"\s*(?:\\pmod\s*(?:\{[^{}]*\}|\d)|\(\s*(?:\\bmod|mod)\s*\d+\s*\))\s*$")
_DEGREES = re.compile(
    r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|\\degrees?(?![a-zA-Z])|\{\s*\\circ\s*\}"
)
_TRIGONOMETRY = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")
_ANGLE = re.compile(r"\{?(\d+(?:\.\d+)?)\}?\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))")
_LABEL = re.compile(r"\(?\s*base\s*\{?(\d+)\}?\s*\)?", re.IGNORECASE)
_EDGES = ("$$", "$", "**", "`", "\\(", "\\)", "\\[", "\\]")


def clean(text: str) -> str:
    r"""One spelling of an answer: delimiters, spacing, units, currency, degrees, percent and `\text` removed.

    Fractions and roots get their braces, `10,\!080` becomes `10,080`. An answer that consists of words keeps
    them: `\text{Evelyn}` becomes `Evelyn`.
    """
    text = _edges(text.strip().translate(_UNICODE))
    text = re.sub(r",\s*\\!\s*|\{,\}", ",", text)
    text = _SIZES.sub("", text).replace("\\$", "").replace("\\%", "").replace("$", "").replace("%", "")
    text = _SPACING.sub(" ", _DECORATION.sub("", text))
    text = text.replace("\\langle", "(").replace("\\rangle", ")")
    if _TRIGONOMETRY.search(text):
        text = _ANGLE.sub(r"(\\frac{\1 \\pi}{180})", text)
    text = _DEGREES.sub("", text)
    text = re.sub(r"\\(?:text|mathrm)\s*\{\s*\(?\s*mod\s*(\d+)\s*\)?\s*\}", r"\\pmod{\1}", text)
    text = _LABEL.sub(r"_{\1}", _WRAPPER.sub(_label, text))
    bare = _words(text)
    text = bare if bare.strip(" .,;/") else _WRAPPER.sub(r"\1", text)
    text = _braces(text)
    text = _BARE_UNITS.sub("", " ".join(text.split()))
    text = re.sub(r"(?:\s*(?:/|\\cdot|\\times|\*))+\s*$", "", text)
    return _MODULUS.sub("", text).rstrip(".,;:\\ ").strip()


def _edges(text: str) -> str:
    """Without the marks around the whole answer."""
    before = None
    while before != text:
        before = text
        text = text.strip().rstrip(".;")
        for mark in _EDGES:
            text = text.removeprefix(mark).removesuffix(mark)
        text = text.strip()
    return text


def _label(match: re.Match[str]) -> str:
    """A wrapper around the base of a number is opened; all others stay for `_words`."""
    return match[1] if _LABEL.search(match[1]) else match[0]


def _words(text: str) -> str:
    """Without units and words in wrappers; `and`, `or` become commas, functions commands."""

    def one(match: re.Match[str]) -> str:
        inner = match[1].strip()
        if inner.strip(" ,").lower() in ("and", "or", ""):
            return "," if inner else " "
        if inner in _FUNCTIONS or (inner in _OPERATORS and match[0].startswith("\\operatorname")):
            return f"\\{inner} " + match[0][match[0].index("}") + 1 :]
        if inner in _KEPT or not re.search("[a-zA-Z]", inner) or re.search(r"\d", inner):
            return inner + match[0][match[0].index("}") + 1 :]
        return " "

    text = re.sub(r"(?<=\s)(?:and|or)(?=\s)", ",", text) if re.search(r"[\d}]\s+(?:and|or)\s", text) else text
    text = _UNIT.sub(one, text)
    return re.sub(r",\s*(?:,\s*)+", ", ", text)


def _braces(text: str) -> str:
    """`\\frac43` and `\\sqrt2` with braces, one fraction command, plain `sqrt(2)`, `pi`, `*` as LaTeX."""
    text = re.sub(r"\\[dtc]frac(?![a-zA-Z])", r"\\frac", text)
    text = re.sub(r"\\frac\s*(\w)\s*(\w)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac\s*(\w)\s*\{", r"\\frac{\1}{", text)
    text = re.sub(r"(\\frac\s*\{[^{}]*\})\s*(\w)", r"\1{\2}", text)
    text = re.sub(r"\\frac\s+\{", r"\\frac{", text)
    text = re.sub(r"√\s*\(([^()]*)\)|√\s*(\w+)", lambda m: f"\\sqrt{{{m[1] or m[2]}}}", text)
    text = re.sub(r"\\sqrt\s*(\w)", r"\\sqrt{\1}", text)
    text = re.sub(r"(?<![\\a-zA-Z])sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"(?<![\\a-zA-Z])(pi|theta)(?![a-zA-Z])", r"\\\1 ", text)
    text = re.sub(r"(?<![\\a-zA-Z])(?:infinity|infty|oo)(?![a-zA-Z])", r"\\infty ", text)
    text = text.replace("**", "^").replace("*", "\\cdot ")
    return _PRODUCT.sub(r"\1\\cdot (", _MIXED_FRACTION.sub(_one_fraction, text))


# latex2sympy adds what stands side by side: it reads `2(3)` and `(2)(3)` as 5, and `\\pi(3)` as a function.
_PRODUCT = re.compile(r"((?<![_\w\\.])\d+(?:\.\d+)?|\\pi|\))\s*\(")
_MIXED_FRACTION = re.compile(r"(?<![\d._^])(\d{1,9})\s*\\frac\{\s*(\d{1,9})\s*\}\{\s*(\d{1,9})\s*\}")


def _one_fraction(match: re.Match[str]) -> str:
    """A mixed number as a fraction; an improper fraction after a number is a factor."""
    whole, top, bottom = (int(group) for group in match.groups())
    if 0 < top < bottom:
        return f"\\frac{{{whole * bottom + top}}}{{{bottom}}}"
    return f"{whole}\\cdot \\frac{{{top}}}{{{bottom}}}"


# --- plain numbers -------------------------------------------------------------------------------------

_DECIMAL = r"(?:[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?|[1-9]\d{0,2}(?: \d{3})+|\d+\.\d*|\.\d+|\d+)"
_POWER = r"10\s*\^\s*(?:\{\s*([+-]?\s*\d{1,3})\s*\}|([+-]?\d{1,3}))"
_NUMBER = re.compile(
    rf"(?P<m>{_DECIMAL})(?:\s*[eE]\s*(?P<e>[+-]?\d{{1,3}})|\s*(?:\\times|\\cdot|[xX])\s*{_POWER})?"
)
_PURE_POWER = re.compile(_POWER)
_MIXED = re.compile(r"(\d+)\s+(\d+)\s*/\s*(\d+)")
_RATIO = re.compile(
    rf"\\frac\{{\s*([+-]?\s*{_DECIMAL})\s*\}}\{{\s*([+-]?\s*{_DECIMAL})\s*\}}|({_DECIMAL})\s*/\s*({_DECIMAL})"
)
_SIGNS = re.compile(r"(?:[+-]\s*)?")
MAX_DIGITS = 400


def plain_number(text: str) -> Fraction | None:
    r"""The exact value of a cleaned decimal, fraction, mixed number or `a \times 10^{n}`, else None."""
    found = leading_number(text)
    return found[0] if found and not found[1] else None


def leading_number(text: str) -> tuple[Fraction, str] | None:
    """The plain number a text begins with, and the rest of the text stripped; None where there is none."""
    text = text.strip()
    start = _SIGNS.match(text)
    assert start is not None
    sign = -1 if "-" in start[0] else 1
    body = text[start.end() :]
    if len(re.sub(r"\D", "", body)) > MAX_DIGITS:
        return None
    for read in (_mixed, _ratio, _scientific):
        if (found := read(body)) is not None:
            return sign * found[0], body[found[1] :].strip()
    return None


def _mixed(text: str) -> tuple[Fraction, int] | None:
    if (match := _MIXED.match(text)) is None:
        return None
    whole, top, bottom = (int(group) for group in match.groups())
    return (whole + Fraction(top, bottom), match.end()) if 0 < top < bottom else None


def _ratio(text: str) -> tuple[Fraction, int] | None:
    if (match := _RATIO.match(text)) is None:
        return None
    top, bottom = (_decimal(group) for group in match.groups() if group is not None)
    return (top / bottom, match.end()) if bottom else None


def _scientific(text: str) -> tuple[Fraction, int] | None:
    if (match := _PURE_POWER.match(text)) is not None:
        return _ten_to(match[1] or match[2]), match.end()
    if (match := _NUMBER.match(text)) is None:
        return None
    exponent = match["e"] or match[3] or match[4]
    value = _decimal(match["m"])
    return (value * _ten_to(exponent) if exponent else value), match.end()


def _decimal(text: str) -> Fraction:
    text = re.sub(r"[,\s]", "", text).rstrip(".")
    return Fraction(text if not text.endswith("-") else "0")


def _ten_to(exponent: str) -> Fraction:
    return Fraction(10) ** int(exponent.replace(" ", ""))


def number_with_unit(text: str) -> Fraction | None:
    """A cleaned answer that is a plain number, or a plain number before a unit: `50.7 atm`, `9.8 m/s^2`.

    What follows the number must look like a unit: letters first, digits only as exponents, no second value.
    """
    text = re.sub(r"^\\approx\s*", "", text)
    found = leading_number(text)
    if found is None:
        return None
    value, rest = found
    return value if not rest or _UNIT_LIKE.fullmatch(rest) else None


_SYMBOL = r"\\(?:mu|Omega|AA|circ|alpha)(?![a-zA-Z])"
_UNIT_LIKE = re.compile(
    rf"(?!(?:x|or|and|to)\b)(?:[a-zA-ZµμΩÅ/]|{_SYMBOL})"
    rf"(?:[a-zA-ZµμΩÅ/.\s'()]|{_SYMBOL}|\\cdot(?![a-zA-Z])|\^\s*\{{?-?\d\}}?|-\d)*"
)
