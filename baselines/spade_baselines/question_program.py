"""A question with a verifiable answer as a one-turn environment program, so that everything is played alike.

The program holds one question and its answer. An answer is right when the last box equals the reference after
spelling differences are taken out, or has the same exact value. That is stricter than a grader that knows
algebra: `x+1` is not `1+x`. Nothing is wrongly called right.
"""

from __future__ import annotations

from spade.types import EnvProgram

PROGRAM = r'''import re
from fractions import Fraction

QUESTION = @question@
ANSWER = @answer@
GONE = ("\\left", "\\right", "\\!", "\\,", "\\%", "%", "\\$", "^\\circ", "^{\\circ}")
NUMBER = r"-?\d{1,40}(\.\d{1,40})?|-?\d{1,40}/-?\d{1,40}|-?\.\d{1,40}"


def last_box(text):
    """Content of the last box with balanced braces, or None."""
    at = text.rfind("\\boxed{")
    depth = 0
    for place in range(at + 6, len(text) if at >= 0 else 0):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[at + 7:place]
    return None


def plain(text):
    """The text without differences of spelling."""
    text = text.strip().strip("$").rstrip(".").replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    for word in GONE:
        text = text.replace(word, "")
    text = re.sub(r"\\(?:text|mathrm|mbox)\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    return "".join(text.split()).casefold()


def value(text):
    """The exact value of a number or fraction, or None."""
    text = re.sub(r"\\frac\{(-?\d+)\}\{(-?\d+)\}", r"\1/\2", text)
    if not re.fullmatch(NUMBER, text):
        return None
    top, _, bottom = text.partition("/")
    return Fraction(top) / Fraction(bottom or 1) if Fraction(bottom or 1) else None


def same(said, wanted):
    said, wanted = plain(said), plain(wanted)
    return said == wanted or (value(wanted) is not None and value(said) == value(wanted))


class QuestionEnv:
    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        return QUESTION, {}

    def step(self, action):
        said = last_box(action)
        won = said is not None and same(said, ANSWER)
        return ("right" if won else "wrong"), float(won), True, False, {}

    def solution(self):
        return ANSWER
'''


def question_program(question: str, answer: str, skill: str, source: str) -> EnvProgram:
    """The program of one question; the play prompt asks for `\\boxed{...}` as always."""
    head, middle = PROGRAM.split("@question@")
    code = head + repr(question) + middle.replace("@answer@", repr(answer), 1)
    return EnvProgram.of(code, skill=skill, game_type="single_turn", source=source)
