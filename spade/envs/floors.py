"""Floor policies: players without skill. A game that one of them wins is not worth playing.

A policy is a function from what it may know to the actions it will give, over and over, until the episode
ends. Readers of the observation and cyclers through small answer spaces are here on purpose: what matters is
not whether the answer is somewhere in the text, but whether a script that cannot think finds it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spade.envs.contract import wrap_action

COMMON = ("yes", "no", "0", "1", "2", "true", "false", "a", "b", "c", "d", "none", "10", "up", "left", "ok")
GARBAGE = "zxqv 77 !?"
MAX_WORDS = 60
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_WORD = re.compile(r"-?\w+(?:[./'-]\w+)*")


@dataclass(frozen=True, slots=True)
class View:
    """What a blind player may know: the first observation, the turn limit, and answers of *other* seeds.

    `answers` are distinct winning actions of other seeds, the most frequent first.
    """

    observation: str
    turns: int
    answers: tuple[str, ...]
    seed: int


Policy = Callable[[View], Sequence[str]]


def numbers(text: str) -> list[str]:
    """Numbers of a text, in order."""
    return _NUMBER.findall(text)


def words(text: str) -> list[str]:
    """Words (and numbers) of a text, in order."""
    return _WORD.findall(text)


def _boxed(contents: Sequence[str], fallback: str = "0") -> list[str]:
    return [wrap_action(c) for c in contents[:MAX_WORDS]] or [wrap_action(fallback)]


def _distinct(items: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _common(view: View, part: int) -> list[str]:
    start = part * view.turns
    return _boxed(COMMON[start : start + view.turns])


def _count(view: View) -> list[str]:
    return _boxed([str(i) for i in range(view.turns)])


def _count_from_first(view: View) -> list[str]:
    found = [n for n in numbers(view.observation) if "." not in n]
    first = int(found[0]) if found else 1
    return _boxed([str(first + i) for i in range(view.turns)])


def _midpoint(view: View) -> list[str]:
    found = sorted(float(n) for n in numbers(view.observation)[:2])
    return _boxed([str(int(sum(found) / 2)) if len(found) == 2 else "50"])


def _dump(view: View) -> list[str]:
    return [wrap_action(" ".join(_distinct(words(view.observation)))[:4000])]


def _random_answers(view: View) -> list[str]:
    rng = random.Random(view.seed)
    return [rng.choice(view.answers) for _ in range(view.turns)] if view.answers else _boxed([])


OPEN_LOOP: dict[str, Policy] = {
    "silence": lambda view: [""],
    "empty_box": lambda view: [wrap_action("")],
    "garbage": lambda view: [wrap_action(GARBAGE)],
    "echo": lambda view: [wrap_action(re.sub(r"[{}\\]", " ", view.observation)[:2000])],
    "numbers": lambda view: _boxed(_distinct(numbers(view.observation))),
    "numbers_backwards": lambda view: _boxed(_distinct(numbers(view.observation)[::-1])),
    "words": lambda view: _boxed(_distinct(words(view.observation))),
    "words_backwards": lambda view: _boxed(_distinct(words(view.observation)[::-1])),
    "counting": _count,
    "counting_from_first": _count_from_first,
    "midpoint": _midpoint,
    "dump": _dump,
    "best_answers": lambda view: list(view.answers) or _boxed([]),
}
"""Decided by the first observation alone."""

RANDOM: dict[str, Policy] = {"random_answers": _random_answers}
"""Plays winning actions of other seeds at random: it knows the vocabulary of the game and nothing else."""

CLOSED_LOOP: dict[str, Callable[[str], str]] = {
    "echo_last": lambda text: wrap_action(re.sub(r"[{}\\]", " ", text)[:2000]),
    "last_number": lambda text: wrap_action((numbers(text) or ["0"])[-1]),
    "last_word": lambda text: wrap_action((words(text) or [""])[-1]),
    "first_number": lambda text: wrap_action((numbers(text) or ["0"])[0]),
}
"""From the latest observation to the next action."""


def open_loop(turns: int) -> dict[str, Policy]:
    """All open-loop policies for a game of `turns` turns, the common answers cut into as many as fit."""
    parts = -(-len(COMMON) // turns)
    common = {f"common_{p + 1}": (lambda view, part=p: _common(view, part)) for p in range(min(parts, 8))}
    return {**OPEN_LOOP, **common}


# --- readers -------------------------------------------------------------------------------------------

READ_POSITIONS = 8


def plain(text: str) -> str:
    """An answer without case and extra space: equal texts are the same answer."""
    return " ".join(text.split()).casefold()


SPLITS: dict[str, Callable[[str], list[str]]] = {
    "number": numbers,
    "word": words,
    "line": lambda text: [line for line in text.splitlines() if line.strip()],
    "quoted text": lambda text: re.findall(r"[\"'`]([^\"'`]+)[\"'`]", text),
}


def reading_rates(observations: Sequence[str], answers: Sequence[str]) -> dict[str, float]:
    """How often each reader of a fixed place (n-th number, word, line, quoted text from either end) is right.

    From each rate the same reader's success with the answer of the next episode is taken off (permutation
    control), so that small answer spaces raise no false alarm.
    """
    own = [plain(a) for a in answers]
    crossed = own[1:] + own[:1]
    rates: dict[str, float] = {}
    for kind, split in SPLITS.items():
        rows = [[plain(item) for item in split(text)] for text in observations]
        for n in range(READ_POSITIONS):
            for position, end in ((n, "start"), (-1 - n, "end")):
                read = [row[position] if -len(row) <= position < len(row) else None for row in rows]
                hits = sum((r == a) - (r == c) for r, a, c in zip(read, own, crossed, strict=True))
                rates[f"{kind} {n + 1} from the {end}"] = hits / len(own)
    return rates


def context_reader(observation: str, answer: str) -> Callable[[str], str] | None:
    """A reader of "whatever follows these two words", learnt from one observation that shows its answer."""
    answer_words, seen = words(answer), words(observation)
    size = len(answer_words)
    if not size:
        return None
    for start in range(1, len(seen) - size + 1):
        if [w.casefold() for w in seen[start : start + size]] == [w.casefold() for w in answer_words]:
            before = tuple(seen[max(0, start - 2) : start])
            return lambda text: _after(words(text), before, size)
    return None


def _after(seen: Sequence[str], before: tuple[str, ...], size: int) -> str:
    width = len(before)
    for start in range(width, len(seen) - size + 1):
        if tuple(seen[start - width : start]) == before:
            return " ".join(seen[start : start + size])
    return ""
