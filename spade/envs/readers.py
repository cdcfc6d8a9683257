"""Readers: scripts that look for the answer at a fixed place of a text, and what a text consists of.

A reader is learnt from a few episodes and cannot think. A game whose answer one of them finds shows it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

ITEM_CHARS = 40
"""Longest piece of a text that may be an option."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_WORD = re.compile(r"-?\w+(?:[./'-]\w+)*")
GROUPED = re.compile(r"(?<!\d)\d{1,3}(?:[,.'_ \u00a0\u2009\u202f]\d{3})+(?!\d)")
SPELLED_OUT = re.compile(r"(?<![^\W_])[^\W_]([\W_]{1,3})[^\W_](?:\1[^\W_])*(?![^\W_])")
_PIECE = re.compile(r"\w+")
_ITEM = re.compile(r"[,;|:\n()\[\]]+")


@lru_cache(maxsize=1024)
def numbers(text: str) -> tuple[str, ...]:
    """Numbers of a text, in order."""
    return tuple(_NUMBER.findall(text))


@lru_cache(maxsize=1024)
def words(text: str) -> tuple[str, ...]:
    """Words (and numbers) of a text, in order."""
    return tuple(_WORD.findall(text))


def items(text: str) -> list[str]:
    """Pieces of a text between commas, colons, brackets and line ends: what a list of options consists of."""
    return [p for p in (part.strip(" .!?'\"") for part in _ITEM.split(text)) if 0 < len(p) <= ITEM_CHARS]


READ_POSITIONS = 8
CONTEXT_CHARS = (3, 8)


def plain(text: str) -> str:
    """An answer without case and extra space: equal texts are the same answer."""
    return " ".join(text.split()).casefold()


SPLITS: dict[str, Callable[[str], Sequence[str]]] = {
    "number": numbers,
    "word": words,
    "line": lambda text: [line for line in text.splitlines() if line.strip()],
    "quoted text": lambda text: re.findall(r"[\"'`]([^\"'`]+)[\"'`]", text),
    "item": items,
    "marked text": lambda text: re.findall(r"[*_#=~]+ ?([^\s*_#=~][^*_#=~\n]*?) ?[*_#=~.]+", text),
    "run of digits": lambda text: re.findall(r"\d+", text),
    "run of letters": lambda text: re.findall(r"[^\W\d_]+", text),
    "grouped number": lambda text: [re.sub(r"\D", "", n) for n in GROUPED.findall(text)],
    "spelled word": lambda text: [re.sub(r"[\W_]", "", w.group()) for w in SPELLED_OUT.finditer(text)],
}


def reading_rates(observations: Sequence[str], answers: Sequence[str]) -> dict[str, float]:
    """How often each reader of a fixed place (n-th number, word, line, quoted text from either end) is right.

    From each rate the same reader's success with the answer of the next episode is taken off (permutation
    control), so that small answer spaces raise no false alarm. Readers that are never right are left out.
    """
    own = [plain(a) for a in answers]
    crossed = own[1:] + own[:1]
    rates: dict[str, float] = {}
    for kind, split in SPLITS.items():
        hits: Counter[tuple[int, str]] = Counter()
        for text, mine, other in zip(observations, own, crossed, strict=True):
            row = split(text)
            for end, near in (("start", row[:READ_POSITIONS]), ("end", row[: -READ_POSITIONS - 1 : -1])):
                for n, read in enumerate(map(plain, near), start=1):
                    if read == mine != other:
                        hits[n, end] += 1
                    elif read == other != mine:
                        hits[n, end] -= 1
        places = [(n, end) for n in range(1, READ_POSITIONS + 1) for end in ("start", "end")]
        rates |= {f"{kind} {n} from the {end}": hits[n, end] / len(own) for n, end in places if hits[n, end]}
    return rates


Template = tuple[str | int, ...]
"""An answer as literal pieces and places of the observation's pieces."""


@lru_cache(maxsize=1024)
def _pieces(text: str) -> tuple[str, ...]:
    return tuple(_PIECE.findall(text))


def shared_pieces(observations: Sequence[str]) -> frozenset[str]:
    """Words and numbers that stand in all observations: the game itself, no value of a task."""
    return frozenset.intersection(*(frozenset(_pieces(text)) for text in observations))


def template(observation: str, answer: str, shared: frozenset[str] = frozenset()) -> Template:
    """An answer with every value of its observation replaced by its first place there."""
    seen = _pieces(observation)
    parts = re.split(f"({_PIECE.pattern})", answer)
    return tuple(seen.index(p) if p in seen and p not in shared else p for p in parts if p)


def is_choice(shape: Template) -> bool:
    """Whether a template says something of its own about one value of the observation."""
    own = [p for p in shape if isinstance(p, str) and _PIECE.search(p)]
    return bool(own) and sum(isinstance(p, int) for p in shape) == 1


def fill(shape: Template, observation: str) -> str:
    """The answer that a template makes of another observation."""
    seen = _pieces(observation)
    return "".join(p if isinstance(p, str) else seen[p] if p < len(seen) else "" for p in shape)


def character_readers(observation: str, answer: str) -> list[Callable[[str], str]]:
    """Readers of "whatever stands after these characters and before that one", learnt from one text."""
    place = observation.find(answer) if len(answer) > 1 else -1
    if place < 1:
        return []
    end = observation[place + len(answer) : place + len(answer) + 1]
    befores = [observation[max(0, place - width) : place] for width in CONTEXT_CHARS]
    return [partial(_between, before=before, end=end) for before in befores]


def _between(text: str, before: str, end: str) -> str:
    start = text.find(before)
    if start < 0:
        return ""
    start += len(before)
    stop = text.find(end, start) if end else len(text)
    return text[start : stop if stop >= 0 else len(text)]


def context_readers(observation: str, answer: str) -> list[Callable[[str], str]]:
    """Readers of "whatever follows, or precedes, these two words", learnt from one text with its answer."""
    wanted, seen = [w.casefold() for w in words(answer)], words(observation)
    size = len(wanted)
    found: list[Callable[[str], str]] = []
    for start in range(len(seen) - size + 1 if size else 0):
        if [w.casefold() for w in seen[start : start + size]] == wanted:
            before, after = seen[max(0, start - 2) : start], seen[start + size : start + size + 2]
            if before:
                found.append(partial(_beside, marks=before, size=size, after=True))
            if after:
                found.append(partial(_beside, marks=after, size=size, after=False))
            break
    return found


def _beside(text: str, marks: Sequence[str], size: int, after: bool) -> str:
    """The `size` words after (or before) the first place where the words `marks` stand."""
    seen, width = words(text), len(marks)
    for start in range(len(seen) - width + 1):
        if list(seen[start : start + width]) == list(marks):
            begin = start + width if after else start - size
            if begin >= 0:
                return " ".join(seen[begin : begin + size])
    return ""
