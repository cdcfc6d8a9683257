"""Tool-use mechanics: set an amount, move an appointment, read before writing."""

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
    return head(
        "Store",
        p["tasks"] + 1 + p["S"],
        (f"{p['verb']}_stock", text, {"good": "string", "count": "integer"}),
        ("read_stock", "read the stock of a good", {"good": "string"}),
    ) + f"""        old = {{g: rng.randint(1, 9) for g in {list(GOODS[: p["K"]])}}}
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
""" + SOLUTION


# --- home: switch devices ------------------------------------------------------------------------------


def home_draw(r: random.Random, level: int) -> Params:
    tasks = pick(level, (1, 1), (2, 2), (3, 3))[0]
    kind = r.choice(("light", "heater", "fan"))
    return {"K": r.randint(4, 5), "tasks": tasks, "S": r.randint(0, 1), "kind": kind}


def home_code(p: Params) -> str:
    return head(
        "Home",
        p["tasks"] + 1 + p["S"],
        (f"switch_{p['kind']}", f"switch a {p['kind']} on or off", {"room": "string", "on": "boolean"}),
        ("list_rooms", "list the rooms", {}),
    ) + f"""        self.state, self.plan = {{g: rng.random() < 0.5 for g in {list(ROOMS[: p["K"]])}}}, []
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
""" + SOLUTION


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
    return head(
        "Diary",
        2 * p["tasks"] + 1 + p["S"],
        ("read_hour", "read the hour of an event", {"event": "string"}),
        ("move_event", "move an event to an hour", {"event": "string", "hour": "integer"}),
    ) + f"""        self.state, self.plan = {{g: rng.randint(10, 13) for g in {list(EVENTS[: p["K"]])}}}, []
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
""" + SOLUTION


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
        return call if r.random() < 0.5 else str(env.answer)
    words = sorted(env.state)
    wrong = next((w for w in words if f'"{w}"' in call), words[0])
    if r.random() < 0.5:
        return call.replace(f'"{wrong}"', f'"{r.choice(words)}"')
    numbers = re.findall(r": (\d+)", call)
    if numbers:
        number = numbers[-1]
        return call.replace(f" {number}", f" {max(0, int(number) + r.choice((-1, 1, 2)))}")
    return call.replace("true", "T").replace("false", "true").replace("T", "false")


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
        "store", "State Modification", store_draw, store_code, plan_expert, plan_naive,
        ("make one call for each request, then answer done", "copy good and count into the call, then answer"),
        ("shop", "stock", "inventory", "store", "order", "goods"),
    ),
    Mechanic(
        "home", "Tool Selection", home_draw, home_code, plan_expert, plan_naive,
        ("switch each room as asked, then answer done", "one call a request, answer when told"),
        ("home", "room", "device", "heating", "light", "switch"),
    ),
    Mechanic(
        "diary", "Data Retrieval", diary_draw, diary_code, plan_expert, plan_naive,
        ("read the hour first, then move the event", "look up before you change, then answer done"),
        ("calendar", "event", "meeting", "hour", "schedule", "plan"),
    ),
)
