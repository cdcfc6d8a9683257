"""A text that is read from left to right: blanks, names, strings, and what stands between brackets."""

from __future__ import annotations

import keyword
import re


class NoCall(Exception):
    """The text is not a list of calls."""


_NAME = r"[^\W\d]\w*"
_SPACE = re.compile(r"(?:\s|\\\n)+")
WORD = re.compile(_NAME)
_QUOTE = re.compile(r"[A-Za-z]{0,2}('''|\"\"\"|'|\")")
_REST = {
    quote: re.compile((r"(?:[^\\]|\\.)*?" if len(quote) == 3 else rf"(?:[^{quote}\\\n]|\\.)*") + quote, re.S)
    for quote in ("'''", '"""', "'", '"')
}
"""What follows an opening quote."""
PAIRS = {"(": ")", "[": "]", "{": "}"}


class Characters:
    """The text, and how far it is read: `at` is the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def string(self) -> str | None:
        """Step over the string that is next and return its source; None where none is.

        Raises NoCall for one that is not closed, as Python would.
        """
        opening = _QUOTE.match(self.text, self.at)
        if opening is None:
            return None
        rest = _REST[opening.group(1)].match(self.text, opening.end())
        if rest is None:
            raise NoCall
        start, self.at = self.at, rest.end()
        return self.text[start : self.at]

    def skip(self, ends: str) -> None:
        """Go to one of the characters `ends` outside brackets and strings, or to the end of the text.

        Raises NoCall for brackets that do not match.
        """
        closing: list[str] = []
        while self.at < len(self.text):
            if self.string() is not None:
                continue
            char = self.text[self.at]
            if not closing and char in ends:
                return
            if char in PAIRS:
                closing.append(PAIRS[char])
            elif char in ")]}" and (not closing or closing.pop() != char):
                raise NoCall
            word = WORD.match(self.text, self.at)
            self.at = word.end() if word is not None else self.at + 1
        if closing:
            raise NoCall

    def space(self) -> None:
        """Skip blanks."""
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found is not None else self.at

    def peek(self) -> str:
        """The next character that is no blank; "" at the end."""
        self.space()
        return self.text[self.at : self.at + 1]

    def take(self, char: str) -> bool:
        """Step over `char` if it is next."""
        if self.peek() != char:
            return False
        self.at += 1
        return True

    def try_word(self) -> str | None:
        """The name that is next, or None."""
        self.space()
        found = WORD.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found.group(0)

    def word(self) -> str:
        """The name that is next. Raises NoCall for anything else, keywords included."""
        word = self.try_word()
        if word is None or keyword.iskeyword(word):
            raise NoCall
        return word
