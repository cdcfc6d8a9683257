"""Mechanics about numbers: bisecting, measuring, adding, sequences, rings."""

from __future__ import annotations

import random
from typing import Any

from spade.embedded.mechanics import (
    NUMBER,
    ONE_ANSWER,
    SOLVE_NUMBER,
    History,
    Mechanic,
    Params,
    pick,
    program,
)

# --- guess: higher / lower -----------------------------------------------------------------------------


GUESS_WORDS = (
    "find the number from 1 to {N} in {T} tries",
    "guess a number from 1 to {N}, {T} tries",
    "a number from 1 to {N} is hidden, {T} tries",
)


def guess_draw(r: random.Random, level: int) -> Params:
    turns = r.randint(*pick(level, (3, 4), (4, 5), (4, 5)))
    low, high = (
        {3: (11, 13), 4: (14, 17), 5: (18, 26)}[turns] if level < 2 else {4: (18, 24), 5: (27, 36)}[turns]
    )
    return {"N": r.randint(low, high), "T": turns, "W": r.randrange(3)}


def guess_code(p: Params) -> str:
    reset = f"""        self.x = r.randint(1, {p["N"]})
        return "{GUESS_WORDS[p["W"]].format(**p)}", {{}}
"""
    step = (
        NUMBER
        + """        done = n == self.x
        say = "right" if done else "higher" if n < self.x else "lower"
"""
    )
    return program("Guess", p["T"], reset, SOLVE_NUMBER, step)


def bounds(top: int, history: History) -> tuple[int, int]:
    low, high = 1, top
    for action, reply in history:
        n = int(action)
        if reply == "higher":
            low = max(low, n + 1)
        elif reply == "lower":
            high = min(high, n - 1)
    return low, max(low, high)


def top_of(env: Any) -> int:
    """Largest number the first observation allows (the players read it from the text)."""
    return int(env.text.split(" to ")[1].replace(",", " ").split()[0])


def guess_expert(env: Any, history: History, r: random.Random) -> str:
    low, high = bounds(top_of(env), history)
    return str((low + high) // 2)


def guess_naive(env: Any, history: History, r: random.Random) -> str:
    low, high = bounds(top_of(env), history) if r.random() < 0.5 else (1, top_of(env))
    return str(r.randint(low, high))


# --- find: distance feedback ---------------------------------------------------------------------------


FIND_WORDS = (
    "measure the number from 1 to {N} in {T} tries",
    "a mark from 1 to {N}, measure it in {T} tries",
    "measure a spot from 1 to {N}, {T} tries",
)


def find_draw(r: random.Random, level: int) -> Params:
    turns = r.randint(2, 3)
    n = r.randint(*pick(level, (8, 12), (11, 20), (18, 32)))
    return {"N": n + turns - 2, "T": turns, "W": r.randrange(3)}


def find_code(p: Params) -> str:
    reset = f"""        self.x = r.randint(1, {p["N"]})
        return "{FIND_WORDS[p["W"]].format(**p)}", {{}}
"""
    step = (
        NUMBER
        + """        done = n == self.x
        say = "right" if done else "off by " + str(abs(n - self.x)) if n else "no number"
"""
    )
    return program("Measure", p["T"], reset, SOLVE_NUMBER, step)


def find_expert(env: Any, history: History, r: random.Random) -> str:
    if not history:
        return "1"
    action, reply = history[0]
    gap = int(reply.split()[-1])
    first = int(action)
    options = [v for v in (first + gap, first - gap) if 1 <= v <= top_of(env) and str(v) not in dict(history)]
    return str(options[0] if options else 1)


def find_naive(env: Any, history: History, r: random.Random) -> str:
    return str(r.randint(1, top_of(env)))


# --- sum -----------------------------------------------------------------------------------------------

SUM_WORDS = {"add": "+", "subtract": "-"}


def sum_draw(r: random.Random, level: int) -> Params:
    low, high = pick(level, (5, 9), (9, 14), (14, 24))
    m = r.randint(low, high)
    return {"M": m, "op": r.choice(("add", "subtract")), "T": r.randint(1, 2) if m > 7 else 1}


def sum_code(p: Params) -> str:
    if p["op"] == "add":
        lines = """        self.x = a + b
        return "add " + str(a) + " and " + str(b), {}
"""
        start = f"""        a, b = r.randint(1, {p["M"]}), r.randint(1, {p["M"]})
"""
    else:
        lines = """        self.x = a - b
        return "take " + str(b) + " from " + str(a), {}
"""
        start = f"""        b = r.randint(1, {p["M"]})
        a = b + r.randint(1, {p["M"]})
"""
    return program("Sum", p["T"], start + lines, SOLVE_NUMBER, ONE_ANSWER)


def near(x: int, r: random.Random) -> int:
    return max(0, x + r.choice((-2, -1, 1, 2)))


def number_expert(env: Any, history: History, r: random.Random) -> str:
    return str(env.x)


def number_naive(env: Any, history: History, r: random.Random) -> str:
    return str(near(env.x, r))


# --- seq -----------------------------------------------------------------------------------------------


def seq_draw(r: random.Random, level: int) -> Params:
    a, b = pick(level, (5, 3), (8, 4), (12, 7))
    a, b = r.randint(a - 1, a + 3), r.randint(b - 1, b + 1)
    return {"A": a, "B": b, "K": r.randint(3, 4), "T": r.randint(1, 2) if a * b > 15 else 1}


def seq_code(p: Params) -> str:
    reset = f"""        a, b = r.randint(1, {p["A"]}), r.randint(1, {p["B"]})
        row = [a + b * i for i in range({p["K"]})]
        self.x = a + b * {p["K"]}
        return "next after " + " ".join(str(v) for v in row), {{}}
"""
    return program("Sequence", p["T"], reset, SOLVE_NUMBER, ONE_ANSWER)


# --- ring ----------------------------------------------------------------------------------------------


def ring_draw(r: random.Random, level: int) -> Params:
    s = r.randint(*pick(level, (5, 8), (8, 11), (11, 16)))
    return {"S": s, "M": r.randint(s // 2, s - 1), "T": r.randint(1, 2) if s > 7 else 1, "W": r.randrange(2)}


def ring_code(p: Params) -> str:
    reset = f"""        a, b = r.randint(1, {p["S"]}), r.randint(1, {p["M"]})
        self.x = (a + b - 1) % {p["S"]} + 1
        return "{("ring of {S} cells at ", "wheel with {S} marks at ")[p["W"]].format(**p)}" + str(a) + " go ahead " + str(b), {{}}
"""
    return program("Ring", p["T"], reset, SOLVE_NUMBER, ONE_ANSWER)


# --- pump: hidden strength -----------------------------------------------------------------------------


PUMP_WORDS = ("pump some strokes", "how many strokes", "press some times")


def pump_draw(r: random.Random, level: int) -> Params:
    k = r.randint(*pick(level, (5, 6), (5, 7), (6, 8)))
    m = r.randint(*pick(level, (7, 8), (8, 9), (8, 10)))
    return {"K": k, "M": m, "T": r.randint(2, 3), "W": r.randrange(3)}


def pump_code(p: Params) -> str:
    reset = f"""        self.k = r.randint(3, {p["K"]})
        self.v = 0
        self.goal = self.k * r.randint(4, {p["M"]})
        return "level 0 goal " + str(self.goal) + " {PUMP_WORDS[p["W"]]}", {{}}
"""
    solution = """
    def solution(self):
        return str((self.goal - self.v) // self.k)
"""
    step = (
        NUMBER
        + """        self.v += n * self.k
        done = self.v == self.goal
        say = "level " + str(self.v) + " goal " + str(self.goal)
"""
    )
    return program("Pump", p["T"], reset, solution, step)


def pump_expert(env: Any, history: History, r: random.Random) -> str:
    if not history:
        return "1"
    return str(max(1, (env.goal - env.v) // env.k))


def pump_naive(env: Any, history: History, r: random.Random) -> str:
    return str(r.randint(1, 9))


MATH = "Mathematical Reasoning"
LOGIC = "Logical Deduction"
MECHANICS = (
    Mechanic(
        "guess",
        LOGIC,
        guess_draw,
        guess_code,
        guess_expert,
        guess_naive,
        (
            "halve the range after each reply",
            "ask the middle of what is left",
            "cut the range in two each time",
        ),
        ("search", "halve", "range", "bisect", "middle", "dictionary", "interval"),
    ),
    Mechanic(
        "find",
        MATH,
        find_draw,
        find_code,
        find_expert,
        find_naive,
        ("ask the low end first, then add the gap", "start at the low end and add what it is off by"),
        ("distance", "measure", "gap", "error", "far", "ruler", "position"),
    ),
    Mechanic(
        "sum",
        MATH,
        sum_draw,
        sum_code,
        number_expert,
        number_naive,
        ("work on the ones first, then the tens", "do the ones, carry, then do the tens"),
        ("add", "sum", "carry", "subtract", "total", "digits", "column"),
    ),
    Mechanic(
        "seq",
        "Pattern Recognition",
        seq_draw,
        seq_code,
        number_expert,
        number_naive,
        ("take the gap and add it to the last number", "add the step between neighbours once more"),
        ("sequence", "series", "progression", "step", "term", "growth", "difference"),
    ),
    Mechanic(
        "ring",
        "Spatial Reasoning",
        ring_draw,
        ring_code,
        number_expert,
        number_naive,
        ("add, and past the end start again", "count on and wrap around at the end"),
        ("clock", "circle", "ring", "cycle", "wheel", "wrap", "orbit"),
    ),
    Mechanic(
        "pump",
        "Causal Inference",
        pump_draw,
        pump_code,
        pump_expert,
        pump_naive,
        ("try one stroke to see its effect, then divide the rest", "test once, then divide what is missing"),
        ("pump", "rate", "effect", "experiment", "flow", "unknown", "pressure"),
    ),
)
