"""Mechanics about order and choice: repeating patterns, rearranging, shifting letters, the best item."""

from __future__ import annotations

import random
from typing import Any

from spade.embedded.mech_logic import letter_expert, letter_naive
from spade.embedded.mechanics import ONE_ANSWER, SOLVE_TEXT, History, Mechanic, Params, pick, program

LETTERS = "ABCDEFGHIJKL"


# --- cycle: repeating pattern --------------------------------------------------------------------------


def cycle_draw(r: random.Random, level: int) -> Params:
    high = r.randint(*pick(level, (6, 6), (6, 7), (7, 8)))
    return {"P": 3, "Q": high, "K": r.randint(high, 12), "W": r.randrange(3)}


def cycle_code(p: Params) -> str:
    reset = f"""        n = r.randint({p["P"]}, {p["Q"]})
        row = r.sample("{LETTERS[: p["K"]]}", n)
        k = n + r.randint(1, n)
        self.x = row[k % n]
        return "{("pattern ", "beads ", "tiles ")[p["W"]]}" + " ".join(row[i % n] for i in range(k)) + " goes on with", {{}}
"""
    return program("Pattern", 1, reset, SOLVE_TEXT, ONE_ANSWER)


# --- order: reverse, sort, rotate ----------------------------------------------------------------------


def order_draw(r: random.Random, level: int) -> Params:
    length = r.randint(*pick(level, (3, 3), (3, 4), (4, 6)))
    return {
        "L": length,
        "kind": r.choice(("reverse", "sort", "rotate")),
        "K": r.randint(6, 12),
        "T": r.randint(1, 2),
    }


ORDER = {"reverse": "row[::-1]", "sort": "sorted(row)", "rotate": "row[1:] + row[:1]"}


def order_code(p: Params) -> str:
    reset = f"""        row = r.sample("{LETTERS[: p["K"]]}", {p["L"]})
        self.x = " ".join({ORDER[p["kind"]]})
        return "{p["kind"]} the letters " + " ".join(row), {{}}
"""
    return program("Order", p["T"], reset, SOLVE_TEXT, ONE_ANSWER)


def order_naive(env: Any, history: History, r: random.Random) -> str:
    row = env.x.split()
    i, j = r.sample(range(len(row)), 2)
    row[i], row[j] = row[j], row[i]
    return " ".join(row)


# --- shift: letters by k -------------------------------------------------------------------------------


def shift_draw(r: random.Random, level: int) -> Params:
    top, k = pick(level, (6, 2), (8, 3), (12, 5))
    return {
        "K": r.randint(top - 1, top),
        "S": r.randint(max(1, k - 1), k),
        "L": r.randint(*pick(level, (1, 2), (1, 2), (2, 3))),
        "W": r.randrange(5),
    }


def shift_code(p: Params) -> str:
    alphabet = LETTERS[: p["K"]]
    reset = f"""        s = "{alphabet}"
        k = r.randint(1, {p["S"]})
        row = [r.randrange({p["K"]}) for _ in range({p["L"]})]
        self.x = " ".join(s[(i + k) % {p["K"]}] for i in row)
        return "letters up to {alphabet[-1]} {("shift ", "move ", "turn ", "push ", "slide ")[p["W"]]}" + " ".join(s[i] for i in row) + " by " + str(k), {{}}
"""
    return program("Shift", 1, reset, SOLVE_TEXT, ONE_ANSWER)


def shift_naive(env: Any, history: History, r: random.Random) -> str:
    row = env.x.split()
    row[r.randrange(len(row))] = r.choice(LETTERS[:8])
    return " ".join(row)


# --- best: the extreme item ----------------------------------------------------------------------------


def best_draw(r: random.Random, level: int) -> Params:
    k = r.randint(*pick(level, (4, 4), (4, 5), (5, 7)))
    return {
        "K": k,
        "M": r.randint(*pick(level, (6, 9), (9, 15), (15, 30))),
        "kind": r.choice(("most", "least")),
        "W": r.randrange(3),
    }


def best_code(p: Params) -> str:
    choose = "max" if p["kind"] == "most" else "min"
    reset = f"""        row = r.sample(range(1, {p["M"] + p["K"]}), {p["K"]})
        self.x = "{LETTERS[: p["K"]]}"[row.index({choose}(row))]
        return "{("prices ", "scores ", "weights ")[p["W"]]}" + " ".join(u + " " + str(v) for u, v in zip("{LETTERS[: p["K"]]}", row)) + " name the {p["kind"]}", {{}}
"""
    return program("Best", 1, reset, SOLVE_TEXT, ONE_ANSWER)


PATTERN = "Pattern Recognition"
MECHANICS = (
    Mechanic(
        "cycle",
        PATTERN,
        cycle_draw,
        cycle_code,
        letter_expert,
        letter_naive,
        (
            "see where the pattern starts again and go on from there",
            "find the repeat and read the next letter in it",
        ),
        ("pattern", "repeat", "rhythm", "period", "weave", "tile", "beat"),
    ),
    Mechanic(
        "order",
        "Spatial Reasoning",
        order_draw,
        order_code,
        letter_expert,
        order_naive,
        ("place one letter at a time and check each", "write the row again letter by letter"),
        ("order", "sort", "reverse", "arrange", "rotate", "row", "stack"),
    ),
    Mechanic(
        "shift",
        PATTERN,
        shift_draw,
        shift_code,
        letter_expert,
        shift_naive,
        ("count on along the letters, past the end start again", "move each letter on by the same count"),
        ("shift", "letter", "alphabet", "encrypt", "message", "key", "substitute"),
    ),
    Mechanic(
        "best",
        "Optimization",
        best_draw,
        best_code,
        letter_expert,
        letter_naive,
        ("compare the prices in turn and keep the winner", "go through the prices and hold the best so far"),
        ("best", "largest", "price", "compare", "choose", "cheap", "maximum"),
    ),
)
