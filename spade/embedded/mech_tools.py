"""Tool-use mechanics whose instructions hold all that is needed: packs, two opposite tools, a list, decline."""

from __future__ import annotations

import random
from typing import Any

from spade.embedded.mechanics import History, Mechanic, Params, pick
from spade.embedded.tool_worlds import (
    SOLUTION,
    arguments_of,
    call,
    careless,
    head,
    listed,
    near,
    plan_expert,
    tool,
)

# --- store: count in packs -----------------------------------------------------------------------------

GOODS = ("milk bread rice salt tea oil", "nails paint wire tape glue sand")
STORE_WORDS = ("get ", "buy ")


def store_draw(r: random.Random, level: int) -> Params:
    return {
        "T": r.randint(*pick(level, (2, 3), (3, 5), (5, 7))),
        "F": r.randint(2, 4),
        "A": r.randint(1, 3),
        "B": r.randint(*pick(level, (5, 8), (7, 10), (9, 14))),
        "L": r.randrange(2),
        "W": r.randrange(2),
    }


def store_code(p: Params) -> str:
    tools = (
        tool("take", '"take packs of " + str(size)', good="string", packs="integer"),
        tool("see", '"see the stock of a good"', good="string"),
    )
    return (
        head("Store", p["T"], *tools, extra=f"    size = {p['F']}\n")
        + f"""        for a in rng.sample({listed(GOODS[p["L"]])}, self.max_turns // 2):
            k = rng.randint({p["A"]}, {p["B"]})
            n = k * self.size
            self.tasks.append(("{STORE_WORDS[p["W"]]}" + str(n) + " " + a, lambda s, a=a, n=n: s.get(a) == n))
            self.plan.append(self.call("take", good=a, packs=k))

    def tool_take(self, good, packs):
        self.state[good] = packs * self.size
        return self.tool_see(good)

    def tool_see(self, good):
        return good + " is " + str(self.state.get(good, 0))
"""
        + SOLUTION
    )


def store_slip(env: Any, right: str, history: History, r: random.Random) -> str:
    """The number of pieces where packs are asked for, now and then a number nearby."""
    found = arguments_of(right)
    packs = found["packs"] * env.size if r.random() < 0.8 else near(found["packs"], r)
    return call("take", good=found["good"], packs=packs)


# --- home: which of two opposite tools -------------------------------------------------------------------

ROOMS = ("hall kitchen attic cellar office", "barn stable garage shed loft")
HOME_WORDS = ((" too cold", " too hot"), (" below", " above"))


def home_draw(r: random.Random, level: int) -> Params:
    return {
        "T": r.randint(*pick(level, (2, 3), (3, 5), (5, 7))),
        "A": r.randint(1, 4),
        "B": r.randint(*pick(level, (6, 9), (9, 16), (16, 30))),
        "L": r.randrange(2),
        "W": r.randrange(2),
    }


def home_code(p: Params) -> str:
    cold, hot = HOME_WORDS[p["W"]]
    tools = (
        tool("heat", '"make a room warmer"', room="string", by="integer"),
        tool("cool", '"make a room colder"', room="string", by="integer"),
    )
    return (
        head("Home", p["T"], *tools)
        + f"""        for a in rng.sample({listed(ROOMS[p["L"]])}, self.max_turns // 2):
            k = rng.randint({p["A"]}, {p["B"]})
            n, w, t = rng.choice([(k, "{cold}", "heat"), (-k, "{hot}", "cool")])
            self.tasks.append((a + " is " + str(k) + w, lambda s, a=a, n=n: s.get(a) == n))
            self.plan.append(self.call(t, room=a, by=k))

    def tool_heat(self, room, by):
        self.state[room] = by
        return room + " is warmer"

    def tool_cool(self, room, by):
        self.state[room] = -by
        return room + " is colder"
"""
        + SOLUTION
    )


def home_slip(env: Any, right: str, history: History, r: random.Random) -> str:
    """The other tool, now and then the right one by another amount."""
    found = arguments_of(right)
    warm = '"heat"' in right
    if r.random() < 0.8:
        return call("cool" if warm else "heat", **found)
    return call("heat" if warm else "cool", room=found["room"], by=near(found["by"], r))


# --- desk: list, then use the number; decline what no tool does --------------------------------------------

THINGS = ("door lamp printer phone", "sink fridge oven fan")
ODD = ("paint ", "sell ")


def desk_draw(r: random.Random, level: int) -> Params:
    low = r.randint(10, 30)
    return {
        "T": r.randint(*pick(level, (3, 4), (4, 5), (5, 7))),
        "K": r.randint(3, 4),
        "A": low,
        "B": low + r.randint(*pick(level, (20, 30), (30, 50), (50, 65))),
        "L": r.randrange(2),
        "W": r.randrange(2),
    }


def desk_code(p: Params) -> str:
    tools = (
        tool("list", '"list the tickets"'),
        tool("close", '"close a ticket"', number="integer"),
        tool("decline", '"no tool can do it"', reason="string"),
    )
    return (
        head("Desk", p["T"], *tools)
        + f"""        self.ids = dict(zip({listed(THINGS[p["L"]])}, rng.sample(range({p["A"]}, {p["B"]}), {p["K"]})))
        for w in rng.sample(sorted(self.ids), (self.max_turns - 1) // 2):
            a, n, v = rng.choice([(self.ids[w], "closed", "close "), ("declined", w, "{ODD[p["W"]]}")])
            self.tasks.append((v + w, lambda s, a=a, n=n: s.get(a) == n))
            self.plan += [self.call("list"), self.call("close", number=a)] if n != w else [self.call("decline", reason=w)]

    def tool_list(self):
        return ", ".join(w + " " + str(n) for w, n in self.ids.items())

    def tool_close(self, number):
        self.state[number] = "closed"
        return "ticket " + str(number) + " closed"
"""
        + SOLUTION
    )


def desk_slip(env: Any, right: str, history: History, r: random.Random) -> str:
    """A number from nowhere, or another ticket's; looking for a ticket that is not asked for."""
    numbers = sorted(env.ids.values())
    if '"decline"' in right:
        return call("list") if r.random() < 0.5 else call("close", number=r.choice(numbers))
    seen = any('"list"' in action for action, _ in history)
    return call("close", number=r.choice(numbers) if seen else r.randint(10, 60))


MECHANICS = (
    Mechanic(
        "store",
        "State Modification",
        store_draw,
        store_code,
        plan_expert,
        careless(store_slip, 0.1),
        (
            "count in packs: divide by the size of a pack",
            "divide the number by what a pack holds, then answer done",
        ),
        ("shop", "stock", "inventory", "store", "order", "goods"),
    ),
    Mechanic(
        "home",
        "Tool Selection",
        home_draw,
        home_code,
        plan_expert,
        careless(home_slip, 0.1),
        ("too cold: heat it; too hot: cool it", "heat what is below, cool what is above, then answer done"),
        ("home", "room", "device", "heating", "light", "switch"),
    ),
    Mechanic(
        "desk",
        "Multi-Step Workflows",
        desk_draw,
        desk_code,
        plan_expert,
        careless(desk_slip, 0.1),
        (
            "list first and close by number; decline what no tool does",
            "look the number up in the list; decline the rest",
        ),
        ("repair", "tool", "fix", "machine", "door", "problem"),
    ),
)
