"""Tool-use mechanics: set amounts, read before writing, look up a value, recover from an error, decline."""

from __future__ import annotations

import random
import re
from typing import Any

from spade.embedded.mechanics import History, Mechanic, Params, pick

HEAD = """class {name}Env(ToolEnv):
    max_turns = {T}
    tools = {{
{tools}    }}

    def setup(self, rng):
"""

TOOL = '        "{name}": {{"description": "{text}", "parameters": {args}}},\n'

SOLUTION = """
    def solution(self):
        return self.plan + [self.answer]
"""

GOODS = ("milk", "bread", "rice", "salt", "tea", "oil")
ROOMS = ("hall", "kitchen", "attic", "cellar", "office")
EVENTS = ("lunch", "meeting", "class", "call", "visit")
NAMES = ("ann", "ben", "cleo", "dan", "eve")
PAPERS = ("letter", "report", "photo", "song", "bill")
FOLDERS = ("work", "trip", "home", "old")
THINGS = ("door", "lamp", "printer", "phone", "window")
ODD = ("order a pizza", "book a flight", "sing a song", "paint the wall")


def head(name: str, turns: int, *tools: tuple[str, str, dict[str, str]]) -> str:
    rows = "".join(TOOL.format(name=n, text=t, args=str(a).replace("'", '"')) for n, t, a in tools)
    return HEAD.format(name=name, T=turns, tools=rows)


# --- store: set amounts --------------------------------------------------------------------------------


def store_draw(r: random.Random, level: int) -> Params:
    return {
        "K": r.randint(3, 6),
        "N": r.randint(*pick(level, (6, 9), (9, 20), (20, 60))),
        "tasks": pick(level, (1, 1), (2, 2), (3, 3))[0],
        "S": r.randint(0, 1),
        "verb": r.choice(("set", "add")),
    }


def store_code(p: Params) -> str:
    change = "= count" if p["verb"] == "set" else "+= count"
    goal = "n" if p["verb"] == "set" else "old[a] + n"
    text = "set the stock of a good" if p["verb"] == "set" else "add to the stock of a good"
    say = '" to "' if p["verb"] == "set" else '" by "'
    return (
        head(
            "Store",
            p["tasks"] + 1 + p["S"],
            (f"{p['verb']}_stock", text, {"good": "string", "count": "integer"}),
            ("read_stock", "read the stock of a good", {"good": "string"}),
        )
        + f"""        old = {{g: rng.randint(1, 9) for g in {list(GOODS[: p["K"]])}}}
        self.state, self.plan = dict(old), []
        for a in rng.sample(sorted(old), {p["tasks"]}):
            n = old[a] + rng.randint(1, {p["N"]})
            self.tasks.append(("{p["verb"]} " + a + {say} + str(n), lambda s, a=a, n=n: s[a] == {goal}))
            self.plan.append(self.call("{p["verb"]}_stock", good=a, count=n))

    def tool_{p["verb"]}_stock(self, good, count):
        self.state[good] {change}
        return good + " is " + str(self.state[good])

    def tool_read_stock(self, good):
        return good + " is " + str(self.state[good])
"""
        + SOLUTION
    )


# --- home: switch devices ------------------------------------------------------------------------------


def home_draw(r: random.Random, level: int) -> Params:
    tasks = pick(level, (1, 1), (2, 2), (3, 3))[0]
    kind = r.choice(("light", "heater", "fan"))
    return {"K": r.randint(4, 5), "tasks": tasks, "S": r.randint(0, 1), "kind": kind}


def home_code(p: Params) -> str:
    return (
        head(
            "Home",
            p["tasks"] + 1 + p["S"],
            (f"switch_{p['kind']}", f"switch a {p['kind']} on or off", {"room": "string", "on": "boolean"}),
            ("list_rooms", "list the rooms", {}),
        )
        + f"""        self.state, self.plan = {{g: rng.random() < 0.5 for g in {list(ROOMS[: p["K"]])}}}, []
        for a in rng.sample(sorted(self.state), {p["tasks"]}):
            v = not self.state[a]
            self.tasks.append(("turn the {p["kind"]} in the " + a + (" on" if v else " off"), lambda s, a=a, v=v: s[a] is v))
            self.plan.append(self.call("switch_{p["kind"]}", room=a, on=v))

    def tool_switch_{p["kind"]}(self, room, on):
        if room not in self.state:
            return "error: no such room"
        self.state[room] = on
        return room + " is " + ("on" if on else "off")

    def tool_list_rooms(self):
        return ", ".join(self.state)
"""
        + SOLUTION
    )


# --- diary: read, then write ---------------------------------------------------------------------------


def diary_draw(r: random.Random, level: int) -> Params:
    return {
        "K": r.randint(3, 5),
        "M": r.randint(*pick(level, (3, 4), (4, 6), (6, 9))),
        "tasks": pick(level, (1, 1), (1, 1), (2, 2))[0],
        "S": r.randint(0, 1),
        "word": r.choice(("later", "earlier")),
    }


def diary_code(p: Params) -> str:
    sign = "+" if p["word"] == "later" else "-"
    return (
        head(
            "Diary",
            2 * p["tasks"] + 1 + p["S"],
            ("read_hour", "read the hour of an event", {"event": "string"}),
            ("move_event", "move an event to an hour", {"event": "string", "hour": "integer"}),
        )
        + f"""        self.state, self.plan = {{g: rng.randint(10, 13) for g in {list(EVENTS[: p["K"]])}}}, []
        for a in rng.sample(sorted(self.state), {p["tasks"]}):
            k = rng.randint(1, {p["M"]})
            n = self.state[a] {sign} k
            self.tasks.append(("move the " + a + " " + str(k) + " hours {p["word"]}", lambda s, a=a, n=n: s[a] == n))
            self.plan += [self.call("read_hour", event=a), self.call("move_event", event=a, hour=n)]

    def tool_read_hour(self, event):
        return event + " is at " + str(self.state[event])

    def tool_move_event(self, event, hour):
        self.state[event] = hour
        return event + " moved"
"""
        + SOLUTION
    )


# --- bank: read, then pay what is missing ----------------------------------------------------------------


def bank_draw(r: random.Random, level: int) -> Params:
    return {
        "K": r.randint(3, 5),
        "M": r.randint(*pick(level, (3, 6), (6, 12), (12, 30))),
        "tasks": pick(level, (1, 1), (1, 1), (2, 2))[0],
        "S": r.randint(0, 1),
        "pay": r.choice(("pay_in", "top_up")),
    }


def bank_code(p: Params) -> str:
    return (
        head(
            "Bank",
            2 * p["tasks"] + 1 + p["S"],
            ("read_balance", "read the balance of an account", {"name": "string"}),
            (p["pay"], "add an amount to an account", {"name": "string", "amount": "integer"}),
        )
        + f"""        self.state, self.plan = {{g: rng.randint(2, 9) for g in {list(NAMES[: p["K"]])}}}, []
        for a in rng.sample(sorted(self.state), {p["tasks"]}):
            k = rng.randint(2, {p["M"]})
            n = self.state[a] + k
            self.tasks.append(("fill the account of " + a + " up to " + str(n), lambda s, a=a, n=n: s[a] == n))
            self.plan += [self.call("read_balance", name=a), self.call("{p["pay"]}", name=a, amount=k)]

    def tool_read_balance(self, name):
        return name + " has " + str(self.state[name])

    def tool_{p["pay"]}(self, name, amount):
        self.state[name] += amount
        return "paid"
"""
        + SOLUTION
    )


# --- files: a folder must be there first -----------------------------------------------------------------


def files_draw(r: random.Random, level: int) -> Params:
    return {
        "K": r.randint(3, 5),
        "F": r.randint(2, 4),
        "tasks": pick(level, (1, 1), (2, 2), (2, 2))[0],
        "S": r.randint(0, 1),
        "word": r.choice(("make_folder", "new_folder")),
        "put": r.choice(("move", "copy")),
    }


def files_code(p: Params) -> str:
    return (
        head(
            "Files",
            2 * p["tasks"] + 1 + p["S"],
            (f"{p['put']}_file", f"{p['put']} a file into a folder", {"file": "string", "folder": "string"}),
            (p["word"], "make a folder", {"folder": "string"}),
        )
        + f"""        self.state, self.plan, self.made = {{g: "" for g in {list(PAPERS[: p["K"]])}}}, [], set()
        f = rng.sample({list(FOLDERS[: p["F"]])}, {min(p["tasks"], p["F"])})
        for a, b in zip(rng.sample(sorted(self.state), {p["tasks"]}), f):
            self.tasks.append(("{p["put"]} the " + a + " into " + b, lambda s, a=a, b=b: s[a] == b))
            self.plan += [self.call("{p["word"]}", folder=b), self.call("{p["put"]}_file", file=a, folder=b)]

    def tool_{p["put"]}_file(self, file, folder):
        if folder not in self.made:
            return "error: no folder " + folder
        self.state[file] = folder
        return file + " is in " + folder

    def tool_{p["word"]}(self, folder):
        self.made.add(folder)
        return folder + " is there"
"""
        + SOLUTION
    )


# --- desk: look up a number, decline what cannot be done ---------------------------------------------------


def desk_draw(r: random.Random, level: int) -> Params:
    return {
        "K": r.randint(3, 5),
        "N": r.randint(*pick(level, (9, 20), (20, 60), (60, 99))),
        "tasks": pick(level, (1, 1), (1, 1), (2, 2))[0],
        "decline": int(r.random() < 0.5),
        "S": r.randint(0, 1),
        "verb": r.choice(("close", "open")),
    }


def desk_code(p: Params) -> str:
    turns = p["tasks"] + 1 + p["decline"] + 1 + p["S"]
    tools = [
        ("list_tickets", "list the tickets with their numbers", {}),
        (f"{p['verb']}_ticket", f"{p['verb']} a ticket by number", {"number": "integer"}),
    ]
    if p["decline"]:
        tools.append(("decline", "say that no tool can do it", {"reason": "string"}))
    last = f"""        self.tasks.append((rng.choice({list(ODD)}), lambda s: "declined" in s))
        self.plan.append(self.call("decline", reason="no tool"))
"""
    return (
        head("Desk", turns, *tools)
        + f"""        self.ids = dict(zip({list(THINGS[: p["K"]])}, rng.sample(range(10, 10 + {p["N"]}), {p["K"]})))
        self.state, self.plan = {{}}, [self.call("list_tickets")]
        for a in rng.sample(sorted(self.ids), {p["tasks"]}):
            n = self.ids[a]
            self.tasks.append(("{p["verb"]} the ticket about the " + a, lambda s, n=n: s.get(n)))
            self.plan.append(self.call("{p["verb"]}_ticket", number=n))
{last if p["decline"] else ""}
    def tool_list_tickets(self):
        return ", ".join(a + " " + str(n) for a, n in self.ids.items())

    def tool_{p["verb"]}_ticket(self, number):
        if number not in self.ids.values():
            return "error: no such ticket"
        self.state[number] = True
        return "ticket " + str(number) + " is done"
"""
        + SOLUTION
    )


def plan_expert(env: Any, history: History, r: random.Random) -> str:
    """Play the next call of the plan that has not been made; answer when all instructions are done."""
    if env.current >= len(env.tasks):
        return str(env.answer)
    made = [a for a, _ in history]
    return str(next((c for c in env.plan if c not in made), env.answer))


def plan_naive(env: Any, history: History, r: random.Random) -> str:
    """A plausible slip: answer too early, another argument, or the other tool."""
    call = plan_expert(env, history, r)
    if call == env.answer or r.random() < 0.25:
        return call if r.random() < 0.3 else str(env.answer)
    words = sorted(str(w) for w in env.state) or sorted(getattr(env, "ids", {}))
    wrong = next((w for w in words if f'"{w}"' in call), None)
    if r.random() < 0.3 and len(env.plan) > 1:
        return str(r.choice([c for c in env.plan if c != call]))  # another step, too early or once more
    if wrong is not None and r.random() < 0.5:
        return call.replace(f'"{wrong}"', f'"{r.choice(words)}"')
    numbers = re.findall(r": (\d+)", call)
    if numbers:
        number = numbers[-1]
        return call.replace(f" {number}", f" {max(0, int(number) + r.choice((-1, 1, 2)))}")
    return call.replace("true", "T").replace("false", "true").replace("T", "false")


DOMAINS = {
    "store": "shopping cart",
    "home": "smart home",
    "diary": "calendar",
    "bank": "banking",
    "files": "file system",
    "desk": "support tickets",
}
"""Domain of a brief that each mechanic answers best."""

TOOL_SKILLS = (
    "API Orchestration",
    "Data Retrieval",
    "State Modification",
    "Error Recovery",
    "Tool Selection",
    "Multi-Step Workflows",
)

MECHANICS = (
    Mechanic(
        "store",
        "State Modification",
        store_draw,
        store_code,
        plan_expert,
        plan_naive,
        (
            "make one call for each request, then answer done",
            "copy good and count into the call, then answer",
        ),
        ("shop", "stock", "inventory", "store", "order", "goods"),
    ),
    Mechanic(
        "home",
        "Tool Selection",
        home_draw,
        home_code,
        plan_expert,
        plan_naive,
        ("switch each room as asked, then answer done", "one call a request, answer when told"),
        ("home", "room", "device", "heating", "light", "switch"),
    ),
    Mechanic(
        "diary",
        "Data Retrieval",
        diary_draw,
        diary_code,
        plan_expert,
        plan_naive,
        ("read the hour first, then move the event", "look up before you change, then answer done"),
        ("calendar", "event", "meeting", "hour", "schedule", "plan"),
    ),
    Mechanic(
        "bank",
        "API Orchestration",
        bank_draw,
        bank_code,
        plan_expert,
        plan_naive,
        ("read the balance first, then pay what is missing", "pay the difference, then answer done"),
        ("money", "account", "price", "cost", "pay", "save"),
    ),
    Mechanic(
        "files",
        "Error Recovery",
        files_draw,
        files_code,
        plan_expert,
        plan_naive,
        ("make the folder first, then put the file into it", "no folder yet: make it before the file"),
        ("file", "paper", "letter", "document", "folder", "list"),
    ),
    Mechanic(
        "desk",
        "Multi-Step Workflows",
        desk_draw,
        desk_code,
        plan_expert,
        plan_naive,
        ("list the tickets first, then use the number", "look up the number; decline what no tool does"),
        ("repair", "tool", "fix", "machine", "door", "problem"),
    ),
)
