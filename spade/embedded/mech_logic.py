"""Mechanics of deduction and cause: letter codes, lamps and levers, true statements."""

from __future__ import annotations

import random
from typing import Any

from spade.embedded.mechanics import NUMBER, ONE_ANSWER, SOLVE_TEXT, History, Mechanic, Params, pick, program

LETTERS = "ABCDEFGH"


# --- code: per-position feedback -----------------------------------------------------------------------


CODE_SIZES = (
    ((2, 3, 3), (2, 4, 3), (2, 4, 4), (3, 2, 2)),
    ((2, 5, 4), (3, 3, 3), (3, 3, 4), (3, 2, 2)),
    ((3, 4, 4), (4, 3, 4), (3, 5, 4), (4, 3, 3)),
)
"""(letters, alphabet, tries) per level, such that naming codes in turn seldom wins."""

CODE_WORDS = (
    "code of {L} letters from",
    "a lock with {L} letters from",
    "a word of {L} letters from",
    "secret of {L} letters from",
    "a key of {L} letters from",
)


def code_draw(r: random.Random, level: int) -> Params:
    length, kinds, turns = r.choice(CODE_SIZES[level])
    return {"L": length, "K": kinds, "T": turns, "W": r.randrange(5)}


def code_code(p: Params) -> str:
    reset = f"""        self.x = " ".join(r.choice("{LETTERS[: p["K"]]}") for _ in range({p["L"]}))
        return "{CODE_WORDS[p["W"]].format(**p)} {" ".join(LETTERS[: p["K"]])} in {p["T"]} tries", {{}}
"""
    step = """        done = a == self.x
        say = " ".join("yes" if u == v else "no" for u, v in zip(a.split(), self.x.split()))
"""
    return program("Code", p["T"], reset, SOLVE_TEXT, step)


def code_options(env: Any, history: History) -> list[list[str]]:
    letters = env.text.split("from ")[1].split(" in ")[0].split()
    length = int(env.text.split(" letters")[0].split()[-1])
    options = [list(letters) for _ in range(length)]
    for action, reply in history:
        for i, (letter, mark) in enumerate(zip(action.split(), reply.split(), strict=False)):
            if mark == "yes":
                options[i] = [letter]
            elif letter in options[i] and len(options[i]) > 1:
                options[i].remove(letter)
    return options


def code_expert(env: Any, history: History, r: random.Random) -> str:
    return " ".join(o[0] for o in code_options(env, history))


def code_naive(env: Any, history: History, r: random.Random) -> str:
    options = code_options(env, []) if r.random() < 0.8 else code_options(env, history)
    return " ".join(r.choice(o) for o in options)


# --- lamps: levers flip lamps --------------------------------------------------------------------------


def lamp_draw(r: random.Random, level: int) -> Params:
    n = r.randint(*pick(level, (4, 5), (5, 6), (6, 8)))
    return {
        "N": n,
        "F": r.randint(*pick(level, (1, 2), (2, 3), (3, 4))),
        "S": r.randint(0, 1),
        "W": r.randrange(5),
    }


def lamp_code(p: Params) -> str:
    turns = p["F"] + p["S"]
    reset = f"""        self.off = set(r.sample(range(1, {p["N"] + 1}), {p["F"]}))
        return self.show(), {{}}

    def show(self):
        return "{("lamps ", "lights ", "switches ", "bulbs ", "signs ")[p["W"]]}" + " ".join(str(i) + ("off" if i in self.off else "on") for i in range(1, {p["N"] + 1}))
"""
    solution = """
    def solution(self):
        return [str(i) for i in sorted(self.off)]
"""
    step = (
        NUMBER
        + """        self.off ^= {n}
        done = not self.off
        say = self.show()
"""
    )
    return program("Lamp", turns, reset, solution, step)


def lamp_expert(env: Any, history: History, r: random.Random) -> str:
    return str(min(env.off)) if env.off else "1"


def lamp_naive(env: Any, history: History, r: random.Random) -> str:
    return str(r.randint(1, env.show().count("o") if r.random() < 0.1 else len(env.show().split()) - 1))


# --- chain: what causes what ---------------------------------------------------------------------------


def chain_draw(r: random.Random, level: int) -> Params:
    return {
        "L": r.randint(*pick(level, (5, 6), (5, 7), (6, 7))),
        "S": r.randint(*pick(level, (1, 2), (2, 3), (3, 4))),
        "W": r.randrange(5),
    }


def chain_code(p: Params) -> str:
    reset = f"""        row = r.sample("{LETTERS}", {p["L"]})
        links = [u + " to " + v for u, v in zip(row, row[1:])]
        k = r.randint(0, {p["L"] - 1 - p["S"]})
        self.x = row[k + {p["S"]}]
        r.shuffle(links)
        return "{("links ", "roads ", "pipes ", "wires ", "doors ")[p["W"]]}" + ", ".join(links) + " from " + row[k] + " go {p["S"]}", {{}}
"""
    return program("Chain", 1, reset, SOLVE_TEXT, ONE_ANSWER)


def letter_expert(env: Any, history: History, r: random.Random) -> str:
    return str(env.x)


def letter_naive(env: Any, history: History, r: random.Random) -> str:
    shown = [w.strip(",:") for w in env.text.split() if w.strip(",:") in LETTERS]
    return str(r.choice(shown or list(LETTERS)))


CAUSAL = "Causal Inference"
MECHANICS = (
    Mechanic(
        "code",
        "Logical Deduction",
        code_draw,
        code_code,
        code_expert,
        code_naive,
        (
            "keep the letters marked yes and change the others",
            "hold what is right, try the next letter elsewhere",
        ),
        ("code", "cipher", "lock", "clue", "secret", "password", "evidence"),
    ),
    Mechanic(
        "lamp",
        CAUSAL,
        lamp_draw,
        lamp_code,
        lamp_expert,
        lamp_naive,
        ("pull only the levers of dark lamps", "name a lamp that is off each turn"),
        ("lamp", "switch", "lever", "circuit", "light", "toggle", "relay"),
    ),
    Mechanic(
        "chain",
        CAUSAL,
        chain_draw,
        chain_code,
        letter_expert,
        letter_naive,
        ("follow the links one by one", "look up each letter and move along its link"),
        ("cause", "chain", "link", "leads", "effect", "domino", "dependency"),
    ),
)
