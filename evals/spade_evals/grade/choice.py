r"""Multiple choice: one letter out of an answer, in the forms models write it; several letters are none.

Looked at in this order, the first that says anything decides: the last `\boxed{}`, the last answer phrase
("The answer is (C)", "Answer: C"), a last line or bold text that is a letter alone or one option's full text.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass

from spade.play.actions import last_box

GRADER = "spade-choice-1"

MAX_OPTIONS = 10
LETTERS = string.ascii_uppercase[:MAX_OPTIONS]
_READ = 4_000
"""Characters read at the end of an answer, where a choice is stated, and of a box."""
_PHRASES = 20
"""Answer phrases looked at, from the last one back."""

_MARKS = re.compile(
    r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mathsf|operatorname|boxed|mbox|bf|rm)(?![a-zA-Z])"
    r"|\\[()\[\],;! ]|[*_`${}]"
)
_ONE = r"\(?\s*([A-Za-z])\s*\)?"
_SEPARATOR = re.compile(r"\s*(?:,|/|&|;|\band\b|\bor\b)\s*")
_TITLE = re.compile(r"(?:option|choice|answer)s?\s+", re.IGNORECASE)
_SINGLE = re.compile(r"\(?\s*([A-Za-z])\s*\)?\s*[.:]?")
_RUN = re.compile(r"[A-J]{2,10}")
_HEADED = re.compile(
    r"(?:(?:the\s+)?(?:correct\s+)?(?:option|choice|answer)\s*(?:is)?\s*:?\s*)?\(?\s*([A-Za-z])\s*(?:\)|[.:,]|\)?\s*$)\s*(.*)",
    re.IGNORECASE | re.DOTALL,
)
_PHRASE = re.compile(
    r"(?:\banswers?\b|\b(?:correct|right|best|choose|pick|select|chose)\s+(?:the\s+)?(?:option|choice|letter)s?\b"
    r"|\b(?:option|choice)s?\b(?=\s*(?:is|are|:|=)))"
    r"\s*(?:(?:is|are|should be|must be|would be|:|=|-)\s*)*(?:(?:option|choice|letter)s?\b\s*:?\s*)?",
    re.IGNORECASE,
)
_RIGHT = re.compile(r"\(?\b([A-Za-z])\)?\s+is\s+(?:the\s+)?(?:correct|right|best)\b")
_DENIED = re.compile(
    r"[\s)]*(?:is|are|was|isn't|can't|cannot)\b\s*(?:not|incorrect|wrong|false|out|impossible|t\b)"
)
_OPTION_LINE = re.compile(r"\(?([A-Z])[.):]\s")
_AFTER = re.compile(rf"{_ONE}(?=[^A-Za-z0-9'’]|$)")
_MORE = re.compile(rf"{_SEPARATOR.pattern}(?:and |or )?{_ONE}(?=[^A-Za-z0-9'’]|$)")
_BOLD = re.compile(r"\*\*\s*\(?([A-Za-z])\)?[.:)]?\s*\*\*")


@dataclass(frozen=True, slots=True)
class Pick:
    """What an answer picks: a letter or None; `read` is the text that decided, empty when nothing did."""

    letter: str | None
    read: str = ""
    why: str = ""


NOTHING = Pick(None)


def pick(text: str, options: Sequence[str]) -> Pick:
    """The letter an answer (thoughts off) picks among `options`. A letter beyond them is none of them.

    Several letters, or a text that two options share, pick nothing but are an answer: `read` is not empty.
    """
    letters = LETTERS[: len(options)]
    box = last_box(text)
    if box is not None:
        return _boxed(box, letters, options) if box else NOTHING
    tail = text[-_READ:]
    for read in (_phrase, _alone):
        if (found := read(tail, letters, options)) is not None:
            return found
    return NOTHING


def _boxed(box: str, letters: str, options: Sequence[str]) -> Pick:
    content = _plain(box[:_READ])
    single = _SINGLE.fullmatch(content)
    if single is not None and single[1].upper() in letters:
        return _letter(single[1], letters, box)
    if (by_text := _by_text(content, letters, options)) is not None:
        return by_text  # before letters are looked for: an option may read "A and B"
    if _several(content):
        return Pick(None, box, "several letters")
    headed = _HEADED.fullmatch(content)
    if headed is not None and _no_article(headed[2]):
        return _letter(headed[1], letters, box)
    stated = _phrase(box[-_READ:], letters, options)
    return stated if stated is not None else Pick(None, box, "no letter")


def _several(content: str) -> bool:
    """Letters and nothing else, two or more: `A, B`, `options A and C`, `BD`."""
    parts = [part for part in _SEPARATOR.split(_TITLE.sub("", content, count=1)) if part]
    letters = len(parts) > 1 and all(_SINGLE.fullmatch(part) for part in parts)
    return letters or _RUN.fullmatch(content) is not None


def _no_article(rest: str) -> bool:
    """Whether what follows a letter leaves it alone: `A. Because` does, `a, b` does not."""
    return not rest or not re.match(r"[A-Za-z]\s*(?:[,)]|$)", rest)


def _phrase(text: str, letters: str, options: Sequence[str]) -> Pick | None:
    plain = _plain(text)
    for match in reversed(list(_PHRASE.finditer(plain))[-_PHRASES:]):
        rest = plain[match.end() :]
        line = rest.split("\n", 1)[0].strip()
        stated = match[0].rstrip().endswith((":", "is")) and not _SINGLE.fullmatch(line)
        if stated and (by_text := _by_text(line, letters, options)) is not None:
            return by_text
        first = _AFTER.match(rest)
        if first is not None and _is_letter(first, rest) and not _DENIED.match(rest, first.end()):
            return _unless_more(first, rest, letters)
    right = [match for match in _RIGHT.finditer(plain) if match[1].isupper()]
    return _letter(right[-1][1], letters, right[-1][0]) if right else None


def _unless_more(first: re.Match[str], rest: str, letters: str) -> Pick:
    """The letter after a phrase; nothing when others follow it (`A or B`)."""
    more = _MORE.match(rest, first.end())
    if more is not None and more[1].upper() in letters:
        return Pick(None, (rest[: first.end()] + more[0]).strip(), "several letters")
    return _letter(first[1], letters, first[0].strip())


def _is_letter(match: re.Match[str], rest: str) -> bool:
    """Whether the one letter after a phrase names an option, and is not a word: "is a cat", "is I think"."""
    if "(" in match[0] or ")" in match[0]:
        return True
    after = rest[match.end() :]
    wordy = match[1] in "aI" or match[1].islower() or match[1] == "A"
    return not wordy or not re.match(r"[ \t]+(?!because\b|since\b|as\b|and\b|or\b)[A-Za-z]", after)


def _alone(text: str, letters: str, options: Sequence[str]) -> Pick | None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    last = _plain(lines[-1])
    if not _SINGLE.fullmatch(last) and (by_text := _by_text(last, letters, options)) is not None:
        return by_text
    if _several(last):
        return Pick(None, lines[-1], "several letters")
    listed_letters = {match[1] for line in lines if (match := _OPTION_LINE.match(_plain(line)))}
    match = re.fullmatch(r"\(?\s*([A-Za-z])\s*\)?[.:]?|([A-Z])[.)]\s+.*", last)
    if match is not None and (match[1] or len(listed_letters) == 1):  # the options repeated pick nothing
        return _letter(match[1] or match[2], letters, lines[-1])
    bold = {letter.upper() for letter in _BOLD.findall(text)}
    if len(bold) > 1:
        return Pick(None, ", ".join(sorted(bold)), "several letters")
    return _letter(bold.pop(), letters, "bold") if bold else None


def _letter(found: str, letters: str, read: str) -> Pick:
    letter = found.upper()
    return Pick(letter, read) if letter in letters else Pick(None, read, f"no option {letter}")


def _by_text(content: str, letters: str, options: Sequence[str]) -> Pick | None:
    """The option that reads so: letter case counts first (`BB` and `Bb` differ), then it does not."""
    for spell in (_spelling, lambda text: _spelling(text).casefold()):
        wanted = spell(content)
        found = [
            letter
            for letter, option in zip(letters, options, strict=True)
            if wanted and spell(option) == wanted
        ]
        if found:
            return (
                Pick(found[0], content) if len(found) == 1 else Pick(None, content, "text of several options")
            )
    return None


def _spelling(text: str) -> str:
    return " ".join(_plain(text).split()).rstrip(".").strip()


def _plain(text: str) -> str:
    """Without emphasis and wrappers."""
    return _MARKS.sub("", text).strip()


# --- options -------------------------------------------------------------------------------------------


def listed(options: Sequence[str]) -> str:
    """The options as shown: `A. ...`, one per line."""
    return "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False))


def shuffled(count: int, key: str) -> list[int]:
    """A fixed order of `count` options for the item `key`: place p shows option `order[p]` of the source.

    By hash, so that it depends neither on the process nor on the Python version, and differs between items.
    """
    return sorted(range(count), key=lambda place: hashlib.sha256(f"{key}\0{place}".encode()).digest())
