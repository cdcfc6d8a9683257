"""Forms in which a text gives an answer away: as it is, spelled out, grouped, glued to others, backwards."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from spade.envs.readers import GROUPED, SPELLED_OUT, words

SPELLED = 3
"""Fewest characters of an answer that is looked for in other forms; shorter ones are there by accident."""
GLUED = 6
"""Fewest letters of an answer that is looked for inside longer words, and backwards."""
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
_BETWEEN = re.compile(r"[\W_]+")
_PADDED = re.compile(r"(?<![\d.])0*(\d+)(?:\.0+)?(?![\d.])")


def shows(text: str, answer: str) -> bool:
    """Whether the words of `answer` stand in `text` in a row."""
    wanted = _spaced(answer)
    return wanted != "  " and wanted in _spaced(text)


def reveals(text: str, answer: str) -> bool:
    """Whether `text` shows `answer` in any form that needs no thought to be read.

    That is as it is, with its characters apart ("4-2-7"), with thousands or zeros marked ("1,234", "007.00"),
    beside other letters ("427kg", "key_bado_x"), in wide characters, or backwards.
    """
    if shows(text, answer):
        return True
    wanted = _BETWEEN.sub("", answer).casefold()
    if len(wanted) < SPELLED or len(answer.split()) > 1:
        return False
    return wanted in _forms(text) or (len(wanted) >= GLUED and wanted.isalpha() and _inside(text, wanted))


def _inside(text: str, wanted: str) -> bool:
    whole = _clean(text).casefold()
    return wanted in whole or wanted[::-1] in whole


def _clean(text: str) -> str:
    return _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))


@lru_cache(maxsize=4096)
def _forms(text: str) -> frozenset[str]:
    """Everything that a text spells, groups, pads or glues, without the marks between."""
    clean = _clean(text)
    found = {_BETWEEN.sub("", m.group()) for marks in (SPELLED_OUT, GROUPED) for m in marks.finditer(clean)}
    found |= set(_PADDED.findall(clean)) | set(re.findall(r"\d+|[^\W\d_]+", clean))
    return frozenset(form.casefold() for form in found)


@lru_cache(maxsize=4096)
def _spaced(text: str) -> str:
    return f" {' '.join(words(text))} ".casefold()
