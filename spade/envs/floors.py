"""Floor policies: players without skill. A game that one of them wins is not worth playing.

A policy is a function from what it may know to the actions it will give, over and over, until the episode
ends. Readers of the observation and cyclers through small answer spaces are here on purpose: what matters is
not whether the answer is somewhere in the text, but whether a script that cannot think finds it.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from spade.envs.contract import wrap_action
from spade.envs.readers import (
    character_readers,
    context_readers,
    items,
    numbers,
    plain,
    reading_rates,
    words,
)

# Handed on: readers are policies of a kind.
__all__ = ["character_readers", "context_readers", "items", "numbers", "plain", "reading_rates", "words"]

COMMON = ("yes", "no", "0", "1", "2", "true", "false", "a", "b", "c", "d", "none", "10", "up", "left", "ok")
_COMMANDS_TEXT = (
    "help hint quit exit reset restart skip pass answer solution show reveal debug cheat admin win solve "
    "done submit start look wait"
)
COMMANDS = (*_COMMANDS_TEXT.split(), "give up")
"""Words that programs treat specially without saying so."""
STALL = ("wait", "pass", "stay", "skip", "rest", "look", "done", "hold")
GARBAGE = "zxqv 77 !?"
MAX_WORDS = 60
MAX_CODE_WORDS = 120
MAX_GUESSED = 80
CODE_WORD_CHARS = 40
_LETTERS = re.compile(r"[A-Za-z]{2,}")


@dataclass(frozen=True, slots=True)
class View:
    """What a blind player may know: the first observation, the turn limit, and answers of *other* seeds.

    `answers` are distinct winning actions of other seeds, the most frequent first; `filled` are their answers
    with the values of this observation in place of theirs ("open 17" where they said "open 4").
    """

    observation: str
    turns: int
    answers: tuple[str, ...]
    seed: int
    filled: tuple[str, ...] = ()


Policy = Callable[[View], Sequence[str]]


@lru_cache(maxsize=64)
def _constants(tree: ast.Module) -> tuple[tuple[object, bool], ...]:
    """Constants of a program in order, each with whether it is a statement of its own (a docstring)."""
    alone: set[int] = set()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            alone.add(id(node.value))  # a statement comes before its parts
        elif isinstance(node, ast.Constant):
            found.append((node.value, id(node) in alone))
    return tuple(found)


def code_words(tree: ast.Module) -> tuple[str, ...]:
    """Short text and whole-number constants of a program: what its code may compare an action with."""
    found: dict[str, None] = {}
    for value, alone in _constants(tree):
        if alone or isinstance(value, bool):
            continue
        if isinstance(value, int) and abs(value) < 10**9:
            found[str(value)] = None
        elif isinstance(value, str) and len(value) <= CODE_WORD_CHARS:
            text = value.strip()
            if text and not set(text) & set("{}\\<>"):
                found[text] = None
    return tuple(found)[:MAX_CODE_WORDS]


def literal_words(tree: ast.Module) -> list[str]:
    """Words in the texts of a program, regular expressions and docstrings included."""
    texts = [value for value, _ in _constants(tree) if isinstance(value, str)]
    return list(dict.fromkeys(w for t in texts for w in _LETTERS.findall(t)))


def guessed_commands(tree: ast.Module) -> list[str]:
    """Words of a program's texts as commands: alone, with one number, with two."""
    known = literal_words(tree)[:MAX_GUESSED]
    return [f"{word}{tail}" for word in known for tail in ("", " 1", " 0 0", " 2 3")]


def _boxed(contents: Sequence[str], fallback: str = "0") -> list[str]:
    return [wrap_action(c) for c in contents[:MAX_WORDS]] or [wrap_action(fallback)]


def _distinct(found: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(found))


def in_turns(contents: Sequence[str], turns: int, name: str) -> dict[str, Policy]:
    """Policies that together try all `contents`, each as many as there are turns."""

    def say(part: Sequence[str]) -> Policy:
        return lambda view: _boxed(part)

    starts = range(0, len(contents), turns)
    return {f"{name}_{n}": say(contents[i : i + turns]) for n, i in enumerate(starts, start=1)}


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
    rng = random.Random(f"policy {view.seed}")  # never the stream that the program itself draws from
    return [rng.choice(view.answers) for _ in range(view.turns)] if view.answers else _boxed([])


OPEN_LOOP: dict[str, Policy] = {
    "numbers": lambda view: _boxed(_distinct(numbers(view.observation))),
    "numbers_backwards": lambda view: _boxed(_distinct(numbers(view.observation)[::-1])),
    "words": lambda view: _boxed(_distinct(words(view.observation))),
    "words_backwards": lambda view: _boxed(_distinct(words(view.observation)[::-1])),
    "items": lambda view: _boxed(_distinct(items(view.observation))),
    "counting": _count,
    "counting_from_first": _count_from_first,
    "midpoint": _midpoint,
    "best_answers": lambda view: list(view.answers) or _boxed([]),
    "filled_answers": lambda view: _boxed(view.filled),
}
"""Decided by the first observation alone."""

BLIND: dict[str, Policy] = {
    "silence": lambda view: [""],
    "empty_box": lambda view: [wrap_action("")],
    "garbage": lambda view: [wrap_action(GARBAGE)],
    "echo": lambda view: [wrap_action(re.sub(r"[{}\\]", " ", view.observation)[:2000])],
    "dump": _dump,
}
"""What wins always or never: a few episodes tell."""

RANDOM: dict[str, Policy] = {"random_answers": _random_answers}
"""Plays winning actions of other seeds at random: it knows the vocabulary of the game and nothing else."""


def _named(text: str, vocabulary: Sequence[str], last: bool) -> str:
    """The action of the vocabulary that a text names first (or last); the garbage action if it names none."""
    padded = f" {' '.join(words(text))} ".casefold()
    find = padded.rfind if last else padded.find
    places = {a: find(f" {' '.join(words(a))} ".casefold()) for a in vocabulary[:MAX_WORDS] if words(a)}
    seen = {a: place for a, place in places.items() if place >= 0}
    if not seen:
        return wrap_action(GARBAGE)
    return wrap_action((max if last else min)(seen, key=lambda a: (seen[a], len(a))))


Reactive = Callable[[Sequence[str]], Callable[[str], str]]
CLOSED_LOOP: dict[str, Reactive] = {
    "echo_last": lambda known: lambda text: wrap_action(re.sub(r"[{}\\]", " ", text)[:2000]),
    "last_number": lambda known: lambda text: wrap_action((numbers(text) or ["0"])[-1]),
    "last_word": lambda known: lambda text: wrap_action((words(text) or [""])[-1]),
    "first_number": lambda known: lambda text: wrap_action((numbers(text) or ["0"])[0]),
    "named_first": lambda known: lambda text: _named(text, known, last=False),
    "named_last": lambda known: lambda text: _named(text, known, last=True),
}
"""From winning actions of other seeds, and then the latest observation, to the next action."""


def open_loop(turns: int) -> dict[str, Policy]:
    """All open-loop policies for a game of `turns` turns, the common answers cut into as many as fit."""
    common = in_turns(COMMON, turns, "common")
    return {**OPEN_LOOP, **{n: p for k, (n, p) in enumerate(common.items()) if k < 8}}


def stalling(known: Collection[str]) -> dict[str, Policy]:
    """Policies that do the same harmless thing in every turn, for those of `STALL` that the code knows."""

    def stall(word: str) -> Policy:
        return lambda view: [wrap_action(word)]

    return {f"stall_{w}": stall(w) for w in STALL if w in known}
