"""Tool-use mechanics in which something comes first: read the hour, read the balance, make the folder."""

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
    steps,
    tool,
)

# --- diary: read, then move ------------------------------------------------------------------------------

EVENTS = ("lunch meeting class visit party", "flight dinner concert match exam")
DIARY_WORDS = (("+", " later"), ("-", " earlier"))


def diary_draw(r: random.Random, level: int) -> Params:
    return {
        "T": r.randint(*pick(level, (3, 4), (3, 5), (5, 6))),
        "M": r.randint(*pick(level, (3, 4), (4, 5), (5, 7))),
        "A": r.randint(8, 10),
        "B": r.randint(13, 16),
        "L": r.randrange(2),
        "W": r.randrange(2),
    }


def diary_code(p: Params) -> str:
    sign, word = DIARY_WORDS[p["W"]]
    tools = (
        tool("see", '"see the hour of an event"', event="string"),
        tool("move", '"move an event"', event="string", hour="integer"),
    )
    return (
        head("Diary", p["T"], *tools)
        + f"""        for a in rng.sample({listed(EVENTS[p["L"]])}, (self.max_turns - 1) // 2):
            k = rng.randint(1, {p["M"]})
            h = rng.randint({p["A"]}, {p["B"]})
            n, w = h {sign} k, "{word}"
            self.state[a] = h
            self.tasks.append(("move " + a + " " + str(k) + w, lambda s, a=a, n=n: s.get(a) == n))
            self.plan += [self.call("see", event=a), self.call("move", event=a, hour=n)]

    def tool_see(self, event):
        return event + " is at " + str(self.state[event])

    def tool_move(self, event, hour):
        self.state[event] = hour
        return event + " is moved"
"""
        + SOLUTION
    )


def diary_slip(env: Any, right: str, history: History, r: random.Random) -> str:
    """Move without looking, or by a wrong sum."""
    found = arguments_of(right)
    if "hour" in found:
        return call("move", event=found["event"], hour=near(found["hour"], r))
    return call("move", event=found["event"], hour=r.randint(8, 18))


# --- bank: read, then pay what is missing ------------------------------------------------------------------

NAMES = ("ann ben cleo dan eve", "fay gus ida joe kim")
BANK_WORDS = (("fill ", " up to "), ("bring ", " to "))


def bank_draw(r: random.Random, level: int) -> Params:
    return {
        "T": r.randint(*pick(level, (3, 4), (3, 5), (5, 6))),
        "M": r.randint(*pick(level, (4, 7), (7, 10), (10, 15))),
        "A": r.randint(1, 4),
        "B": r.randint(6, 9),
        "L": r.randrange(2),
        "W": r.randrange(2),
    }


def bank_code(p: Params) -> str:
    before, between = BANK_WORDS[p["W"]]
    tools = (
        tool("ask", '"ask for a balance"', name="string"),
        tool("pay", '"add an amount"', name="string", amount="integer"),
    )
    return (
        head("Bank", p["T"], *tools)
        + f"""        for a in rng.sample({listed(NAMES[p["L"]])}, (self.max_turns - 1) // 2):
            k = rng.randint(2, {p["M"]})
            h = rng.randint({p["A"]}, {p["B"]})
            n = h + k
            self.state[a] = h
            self.tasks.append(("{before}" + a + "{between}" + str(n), lambda s, a=a, n=n: s.get(a) == n))
            self.plan += [self.call("ask", name=a), self.call("pay", name=a, amount=k)]

    def tool_ask(self, name):
        return name + " has " + str(self.state[name])

    def tool_pay(self, name, amount):
        self.state[name] += amount
        return self.tool_ask(name)
"""
        + SOLUTION
    )


def bank_slip(env: Any, right: str, history: History, r: random.Random) -> str:
    """Pay the whole amount instead of what is missing, or nearly what is missing."""
    found = arguments_of(right)
    name = found["name"]
    if "amount" in found and r.random() < 0.5:
        return call("pay", name=name, amount=near(found["amount"], r))
    wanted = env.tasks[env.current][0].split()[-1]
    return call("pay", name=name, amount=int(wanted))


# --- files: a folder must be there first -------------------------------------------------------------------

FOLDERS = ("work trip home old tax", "red blue green grey pink")
FILES_WORDS = ("put file ", "save file ")


def files_draw(r: random.Random, level: int) -> Params:
    low = r.randint(1, 20)
    return {
        "T": r.randint(*pick(level, (3, 4), (3, 5), (5, 6))),
        "A": low,
        "B": low + r.randint(*pick(level, (20, 40), (30, 50), (50, 75))),
        "L": r.randrange(2),
        "W": r.randrange(2),
    }


def files_code(p: Params) -> str:
    tools = (
        tool("put", '"put a file into a folder"', file="integer", folder="string"),
        tool("make", '"make a folder"', folder="string"),
    )
    return (
        head("Files", p["T"], *tools)
        + f"""        for n in rng.sample({listed(FOLDERS[p["L"]])}, (self.max_turns - 1) // 2):
            a = rng.randint({p["A"]}, {p["B"]})
            self.tasks.append(("{FILES_WORDS[p["W"]]}" + str(a) + " into " + n, lambda s, a=a, n=n: s.get(a) == n))
            self.plan += [self.call("make", folder=n), self.call("put", file=a, folder=n)]

    def tool_make(self, folder):
        self.state[folder] = "made"
        return folder + " is made"

    def tool_put(self, file, folder):
        if folder not in self.state:
            return "error: no folder " + folder
        self.state[file] = folder
        return "file is in " + folder
"""
        + SOLUTION
    )


def files_slip(env: Any, right: str, history: History, r: random.Random) -> str:
    """Put the file where no folder is yet; later on, another file."""
    put: str = steps(env)[env.current][-1]
    if right != put:
        return put
    found = arguments_of(put)
    return call("put", file=near(found["file"], r), folder=found["folder"])


MECHANICS = (
    Mechanic(
        "diary",
        "Data Retrieval",
        diary_draw,
        diary_code,
        plan_expert,
        careless(diary_slip, 0.2),
        ("see the hour first, then move the event", "see it before you move it, then answer done"),
        ("calendar", "event", "meeting", "hour", "schedule", "plan"),
    ),
    Mechanic(
        "bank",
        "API Orchestration",
        bank_draw,
        bank_code,
        plan_expert,
        careless(bank_slip, 0.35),
        ("ask for the balance first, then pay what is missing", "pay the difference only, then answer done"),
        ("money", "account", "price", "cost", "pay", "save"),
    ),
    Mechanic(
        "files",
        "Error Recovery",
        files_draw,
        files_code,
        plan_expert,
        careless(files_slip, 0.25),
        ("make the folder first, then put the file into it", "no folder yet: make it before the file"),
        ("file", "paper", "letter", "document", "folder", "list"),
    ),
)
