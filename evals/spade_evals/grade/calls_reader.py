"""Reads function calls out of text, `[f(a=1), g(b='x')]`, without ever evaluating anything.

A reader of its own instead of Python's parser: text of a model may be built to overflow that parser's stack,
and what is not a literal has to be told from what is no call at all.

    text ─read_calls─► Reading(calls)              to be run, arguments are plain values
                       Reading(refused=Refusal)    calls, but one of them may not be run: then none is
                       Reading()                   no call: prose, or broken syntax
"""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from dataclasses import dataclass
from typing import Any

from spade_evals.grade.calls import (
    MAX_CALLS,
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_ITEMS,
    MAX_STRING,
    MAX_TEXT,
    Call,
    Refusal,
    RefusalCode,
    Refused,
    check_argument_name,
    check_name,
    check_value,
)
from spade_evals.grade.characters import PAIRS, WORD, Characters, NoCall


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text holds; see the module text."""

    calls: tuple[Call, ...] = ()
    refused: Refusal | None = None


def read_calls(text: str, names_as_text: bool = False) -> Reading:
    """Read `[f(a=1), ...]` or a single `f(a=1)`, blanks around it allowed. Never raises.

    `names_as_text` takes a bare name as an argument for a string, which is how variables are written in
    reference answers.
    """
    return read_with(Reader(text, names_as_text))


def read_with(reader: Reader) -> Reading:
    """The same with a reader of one's own making."""
    text = reader.text
    if not reader.begins_call():
        return Reading()
    try:
        if len(text) > MAX_TEXT:
            raise Refused(RefusalCode.TOO_LONG, f"{len(text):,} characters")
        calls = reader.calls()
    except Refused as refused:
        return Reading(refused=refused.refusal)
    except NoCall:
        return Reading()
    if reader.refusal is not None:
        return Reading(refused=reader.refusal)
    return Reading(tuple(calls))


_NUMBER = re.compile(
    r"0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+"
    r"|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d[\d_]*)?"
)
_ENDS = frozenset(",)]}:")
_CONSTANTS = {"True": True, "False": False, "None": None}
_PLAIN_PREFIXES = frozenset(("", "r", "R", "u", "U"))


class Reader(Characters):
    """Reads the calls of one text from left to right."""

    def __init__(self, text: str, names_as_text: bool) -> None:
        super().__init__(text)
        self.names_as_text = names_as_text
        self.refusal: Refusal | None = None
        """The first thing that may not be run; reading goes on, to see whether it is a call at all."""

    def begins_call(self) -> bool:
        """Whether the text begins like calls do."""
        self.take("[")
        found = self.try_word()
        while found is not None and self.take("."):
            found = self.try_word()
        begins = found is not None and self.peek() == "("
        self.at = 0
        return begins

    def calls(self) -> list[Call]:
        """All calls. Raises NoCall or Refused."""
        bracket = self.take("[")
        found = [self.call()]
        while self.take(","):
            if bracket and self.peek() == "]":
                break
            if len(found) == MAX_CALLS:
                raise Refused(RefusalCode.TOO_MANY, f"more than {MAX_CALLS} calls")
            found.append(self.call())
        if bracket and not self.take("]"):
            raise NoCall
        self.space()
        if self.at < len(self.text):
            raise NoCall
        return found

    def call(self) -> Call:
        """`name(...)`."""
        words = [self.word()]
        while self.take("."):
            words.append(self.word())
        if not self.take("("):
            raise NoCall
        name = ".".join(words)
        try:
            check_name(name)
        except Refused as refused:
            self.note(refused)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        count = 0
        while not self.take(")"):
            count += 1
            if count > MAX_ITEMS:
                raise Refused(RefusalCode.TOO_LONG, f"more than {MAX_ITEMS:,} arguments")
            self.argument(args, kwargs)
            if not self.take(",") and self.peek() != ")":
                raise NoCall
        if self.peek() in (".", "(", "["):  # something is done with the result
            start = self.at
            self.skip(",]")
            self.note(_expression(self.text[start : self.at].strip()))
        return Call(name, tuple(args), kwargs)

    def argument(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """`value` or `name=value`, into one of the two."""
        start = self.at
        word = self.try_word()
        if word is not None and self.peek() == "=" and self.text[self.at + 1 : self.at + 2] != "=":
            self.take("=")
            value = self.value_or_note()
            try:
                check_argument_name(word)
                if word in kwargs:
                    raise Refused(RefusalCode.BAD_NAME, f"argument {word} given twice")
            except Refused as refused:
                self.note(refused)
            kwargs[word] = value
            return
        self.at = start
        value = self.value_or_note()
        if kwargs:
            raise NoCall  # positional after named: no Python either
        args.append(value)

    # --- values ----------------------------------------------------------------------------------------

    def value_or_note(self) -> Any:
        """A whole argument; what is no literal is noted and skipped."""
        start = self.at
        try:
            value = self.value(0)
            if self.peek() in (",", ")"):
                return value
            found = Refused(RefusalCode.NOT_LITERAL)
        except Refused as refused:
            found = refused
        self.at = start
        self.skip(",)")
        inside = self.text[start : self.at].strip()
        if found.refusal.code is RefusalCode.NOT_LITERAL:
            found = _expression(inside)
        self.note(found)
        return None

    def value(self, depth: int) -> Any:
        """A literal. Raises Refused for anything else that stands here, NoCall at the end of the text."""
        if depth > MAX_DEPTH:
            raise Refused(RefusalCode.TOO_DEEP, f"more than {MAX_DEPTH} levels")
        char = self.peek()
        if char == "":
            raise NoCall
        if (token := self.string()) is not None:
            return self.strings(token)
        if char in "+-" or char.isdigit() or char == ".":
            return self.number()
        if char == "[":
            return self.items("[", depth)[0]
        if char == "(":
            items, comma = self.items("(", depth)
            return tuple(items) if comma or not items else items[0]
        if char == "{":
            return self.pairs(depth)
        return self.constant()

    def constant(self) -> Any:
        """True, False, None; another bare name only where names are taken for text."""
        word = self.try_word()
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        if word is not None and word.startswith("_"):
            raise Refused(RefusalCode.PRIVATE_NAME, word)
        if word is not None and self.names_as_text and not keyword.iskeyword(word) and self.peek() in _ENDS:
            return word
        raise Refused(RefusalCode.NOT_LITERAL)

    def strings(self, token: str | None) -> str:
        """Neighbouring strings, joined."""
        parts = []
        while token is not None:
            if token[: token.index(token[-1])] not in _PLAIN_PREFIXES:
                raise Refused(RefusalCode.NOT_LITERAL)
            if len(token) > 4 * MAX_STRING:
                raise Refused(RefusalCode.TOO_LONG, f"an argument of {len(token):,} characters")
            parts.append(_unquoted(token))
            if len(parts) > MAX_ITEMS:
                raise Refused(RefusalCode.TOO_LONG, f"a string in more than {MAX_ITEMS:,} pieces")
            self.space()
            token = self.string()
        text = "".join(parts)
        check_value(text, 0)
        return text

    def number(self) -> int | float:
        """An integer or a float with signs before it."""
        sign, signs = 1, 0
        while self.peek() in ("+", "-"):
            sign, signs = (-sign if self.peek() == "-" else sign), signs + 1
            self.at += 1
            if signs > MAX_DEPTH:
                raise Refused(RefusalCode.TOO_DEEP, "too many signs")
        self.space()
        found = _NUMBER.match(self.text, self.at)
        if found is None:
            raise Refused(RefusalCode.NOT_LITERAL)
        if len(found.group(0)) > MAX_DIGITS:
            raise Refused(RefusalCode.BAD_NUMBER, f"{len(found.group(0)):,} digits")
        try:
            value = ast.literal_eval(found.group(0))  # a token of digits: nothing else can be in it
        except (ValueError, SyntaxError):
            raise NoCall from None
        self.at = found.end()
        if WORD.match(self.text, self.at):
            raise Refused(RefusalCode.NOT_LITERAL)
        check_value(value, 0)
        return value if sign > 0 else -value  # type: ignore[no-any-return]

    def items(self, opening: str, depth: int) -> tuple[list[Any], bool]:
        """The values between brackets, and whether a comma stands among them."""
        self.take(opening)
        out: list[Any] = []
        comma = False
        while not self.take(PAIRS[opening]):
            out.append(self.value(depth + 1))
            if len(out) > MAX_ITEMS:
                raise Refused(RefusalCode.TOO_LONG, f"more than {MAX_ITEMS:,} values in one argument")
            if self.take(","):
                comma = True
            elif self.peek() != PAIRS[opening]:
                raise Refused(RefusalCode.NOT_LITERAL)
        return out, comma

    def pairs(self, depth: int) -> dict[Any, Any]:
        """A dict; its keys are strings, numbers or constants."""
        self.take("{")
        out: dict[Any, Any] = {}
        while not self.take("}"):
            key = self.value(depth + 1)
            if isinstance(key, list | dict | tuple) or not self.take(":"):
                raise Refused(RefusalCode.NOT_LITERAL)
            out[key] = self.value(depth + 1)
            if len(out) > MAX_ITEMS:
                raise Refused(RefusalCode.TOO_LONG, f"more than {MAX_ITEMS:,} values in one argument")
            if not self.take(",") and self.peek() != "}":
                raise Refused(RefusalCode.NOT_LITERAL)
        return out

    def note(self, refused: Refused) -> None:
        """Remember the first refusal."""
        self.refusal = self.refusal or refused.refusal


def _expression(text: str) -> Refused:
    """The refusal of an expression; a private name in it outranks the rest."""
    private = re.search(r"(?<!\w)_\w*", text)
    if private is not None:
        return Refused(RefusalCode.PRIVATE_NAME, private.group(0))
    return Refused(RefusalCode.NOT_LITERAL, text)


def _unquoted(token: str) -> str:
    """The value of one string token."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes that Python does not know
        try:
            value = ast.literal_eval(token)  # a single token that the pattern has checked
        except (ValueError, SyntaxError):
            raise NoCall from None
    return str(value)
