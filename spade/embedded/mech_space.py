"""Mechanics of several moves: walking on a grid, coins to a total, packing what is needed."""

from __future__ import annotations

import random
from typing import Any

from spade.embedded.mechanics import NUMBER, History, Mechanic, Params, pick, program

THINGS = (
    ("red", "blue", "green", "white"),
    ("rope", "lamp", "map", "tent"),
    ("milk", "bread", "rice", "salt"),
)


# --- walk ----------------------------------------------------------------------------------------------


def walk_draw(r: random.Random, level: int) -> Params:
    size = r.randint(*pick(level, (3, 4), (4, 5), (5, 6)))
    return {"S": size, "T": r.randint(0, 2), "W": r.randrange(4)}


WALKERS = ("at", "robot", "boat", "you")


def walk_code(p: Params) -> str:
    reset = f"""        cells = [(x, y) for x in range({p["S"]}) for y in range({p["S"]})]
        self.p, self.g = r.sample(cells, 2)
        self.max_turns = self.far() + {p["T"]}
        return self.show() + " moves " + str(self.max_turns), {{}}

    def far(self):
        return sum(abs(u - v) for u, v in zip(self.p, self.g))

    def show(self):
        return "{WALKERS[p["W"]]} {{}} {{}} goal {{}} {{}}".format(*self.p, *self.g)
"""
    solution = """
    def solution(self):
        x, y = (v - u for u, v in zip(self.p, self.g))
        return ["right" if x > 0 else "left"] * abs(x) + ["up" if y > 0 else "down"] * abs(y)
"""
    step = """        x = (a == "right") - (a == "left")
        y = (a == "up") - (a == "down")
        self.p = (self.p[0] + x, self.p[1] + y)
        done = self.p == self.g
        say = self.show()
"""
    return program("Walk", 2 * p["S"], reset, solution, step)


def walk_expert(env: Any, history: History, r: random.Random) -> str:
    x, y = (v - u for u, v in zip(env.p, env.g, strict=True))
    if x:
        return "right" if x > 0 else "left"
    return "up" if y > 0 else "down"


def walk_naive(env: Any, history: History, r: random.Random) -> str:
    return walk_expert(env, history, r) if r.random() < 0.3 else r.choice(("left", "right", "up", "down"))


# --- coins ---------------------------------------------------------------------------------------------

COIN_SETS = ((1, 3, 9), (1, 5, 10), (1, 4, 8), (2, 5, 9), (1, 6, 10), (2, 7, 11), (3, 5, 8), (1, 3, 7))


def coin_draw(r: random.Random, level: int) -> Params:
    index = r.randrange(len(COIN_SETS))
    m = r.randint(*pick(level, (3, 3), (3, 4), (4, 6)))
    return {"set": index, "M": m, "W": r.randrange(3)}


def coin_code(p: Params) -> str:
    coins = COIN_SETS[p["set"]]
    text = " ".join(str(c) for c in coins)
    reset = f"""        self.plan = sorted(r.choice({list(coins)}) for _ in range({p["M"]}))[::-1]
        self.goal, self.v = sum(self.plan), 0
        return "{("coins", "stamps", "notes")[p["W"]]} {text} pay " + str(self.goal) + " in {p["M"]}", {{}}
"""
    solution = """
    def solution(self):
        return [str(c) for c in self.plan]
"""
    step = (
        NUMBER
        + f"""        self.v += n if n in {list(coins)} else 0
        done = self.v == self.goal
        say = "pay " + str(self.goal - self.v)
"""
    )
    return program("Coin", p["M"], reset, solution, step)


def coin_values(env: Any) -> list[int]:
    return [int(c) for c in env.text.split(" pay")[0].split()[1:]]


def coin_expert(env: Any, history: History, r: random.Random) -> str:
    left = list(env.plan)
    for action, _ in history:
        if int(action) in left:
            left.remove(int(action))
    rest = env.goal - env.v
    greedy = [c for c in coin_values(env) if c <= rest]
    return str(left[0] if left and sum(left) == rest else max(greedy or coin_values(env)))


def coin_naive(env: Any, history: History, r: random.Random) -> str:
    return str(r.choice(coin_values(env)))


# --- pack ----------------------------------------------------------------------------------------------


def pack_draw(r: random.Random, level: int) -> Params:
    k = r.randint(*pick(level, (3, 4), (3, 4), (4, 4)))
    m = r.randint(*pick(level, (2, 3), (3, 4), (4, 6)))
    return {
        "K": k,
        "M": m,
        "S": r.randint(0, 1) if m > 3 and k > 3 else 0,
        "W": r.randrange(3),
        "V": r.randrange(2),
    }


def pack_code(p: Params) -> str:
    colours = list(THINGS[p["W"]][: p["K"]])
    reset = f"""        self.need = sorted(r.choice({colours}) for _ in range({p["M"]}))
        return self.show(), {{}}

    def show(self):
        return "{("still need ", "pack ")[p["V"]]}" + " ".join(self.need)
"""
    solution = """
    def solution(self):
        return list(self.need)
"""
    step = """        if a in self.need:
            self.need.remove(a)
        done = not self.need
        say = self.show()
"""
    return program("Pack", p["M"] + p["S"], reset, solution, step)


def pack_expert(env: Any, history: History, r: random.Random) -> str:
    return str(env.need[0])


def pack_naive(env: Any, history: History, r: random.Random) -> str:
    return r.choice(next(t for t in THINGS if env.need[0] in t))


MECHANICS = (
    Mechanic(
        "walk",
        "Spatial Reasoning",
        walk_draw,
        walk_code,
        walk_expert,
        walk_naive,
        (
            "first go level with the goal sideways, then close the rest",
            "close one side first, then the other",
        ),
        ("map", "walk", "grid", "north", "direction", "path", "street"),
    ),
    Mechanic(
        "coin",
        "Optimization",
        coin_draw,
        coin_code,
        coin_expert,
        coin_naive,
        ("pay the largest coin that fits each turn", "use big coins first and fill up with small ones"),
        ("coin", "money", "change", "budget", "pay", "cash", "cost"),
    ),
    Mechanic(
        "pack",
        "Optimization",
        pack_draw,
        pack_code,
        pack_expert,
        pack_naive,
        ("take only what is still needed", "name an item of the list each turn"),
        ("pack", "inventory", "list", "stock", "shopping", "bag", "recipe"),
    ),
)
