"""What the tool-use mechanics have in common: the shape of their programs, their skills and their players.

The programs are regular on purpose. A line is one token of the embedded tokenizer as long as it holds no
number, the number of instructions follows from `max_turns`, and a number that matters in several places
stands in one of them. So a program is a few dozen tokens, and a small model cannot contradict itself in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from spade.embedded.mechanics import History, Player

SOLUTION = """
    def solution(self):
        return self.plan + [self.answer]
"""

TOOL_SKILLS = (
    "API Orchestration",
    "Data Retrieval",
    "State Modification",
    "Error Recovery",
    "Tool Selection",
    "Multi-Step Workflows",
)

DOMAINS = {
    "store": "shopping cart",
    "home": "smart home",
    "diary": "calendar",
    "bank": "banking",
    "files": "file system",
    "desk": "support tickets",
}
"""Domain of a brief that each mechanic answers best."""

FIRST = ("see", "ask", "make", "list")
"""Names of tools that only prepare what an instruction asks for."""
STOPS = 0.9
"""Share of the episodes' ends at which a careless player answers when told to."""

Slip = Callable[[Any, str, History, random.Random], str]
"""(env, right call, history, rng) to the call a careless player makes instead."""


def head(name: str, turns: int, *tools: str, extra: str = "") -> str:
    """The top of a program: class line, turn limit, `extra` class attributes, and one line for each tool."""
    rows = "".join(f"        {tool},\n" for tool in tools)
    return f"""class {name}Env(ToolEnv):
    max_turns = {turns}
{extra}    tools = {{
{rows}    }}

    def setup(self, rng):
        self.state, self.plan = {{}}, []
"""


def tool(name: str, description: str, /, **arguments: str) -> str:
    """One entry of `tools` as source; `description` is source too."""
    parameters = ", ".join(f'"{key}": "{kind}"' for key, kind in arguments.items())
    return f'"{name}": {{"description": {description}, "parameters": {{{parameters}}}}}'


def listed(words: str) -> str:
    """Words as the source of a list."""
    return "[" + ", ".join(f'"{word}"' for word in words.split()) + "]"


def call(name: str, /, **arguments: object) -> str:
    """The action text of one call, as `ToolEnv.call` writes it."""
    from spade.envs.tools import ToolEnv

    return ToolEnv.call(ToolEnv(), name, **arguments)


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments of a call's text."""
    import json

    found: dict[str, Any] = json.loads(text[text.index("{") : text.rindex("}") + 1])["arguments"]
    return found


def steps(env: Any) -> list[list[str]]:
    """The calls of `env.plan` by instruction: preparing ones (`FIRST`), then the one that fulfils it."""
    groups: list[list[str]] = [[]]
    for one in env.plan:
        groups[-1].append(one)
        if not any(f'"name": "{name}"' in one for name in FIRST):
            groups.append([])
    return groups[:-1]


def plan_expert(env: Any, history: History, r: random.Random) -> str:
    """Play the next call for the instruction at hand that has not been made; answer when all are done."""
    if env.current >= len(env.tasks):
        return str(env.answer)
    made = [action for action, reply in history if not reply.startswith("error")]
    mine: list[str] = steps(env)[env.current]
    return next((c for c in mine if c not in made), mine[-1])


def careless(slip: Slip, right_share: float) -> Player:
    """A player that makes the mistake of `slip` in all but `right_share` of its moves."""

    def play(env: Any, history: History, r: random.Random) -> str:
        right = plan_expert(env, history, r)
        if right == env.answer:
            return right if r.random() < STOPS or not history else history[-1][0]
        return right if r.random() < right_share else slip(env, right, history, r)

    return play


def near(number: int, r: random.Random) -> int:
    """A number that is a little off, never below zero."""
    return max(0, number + r.choice((-2, -1, 1, 2)))
