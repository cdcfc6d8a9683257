"""The mechanics of the pretraining corpus: parameterised environment programs with scripted players.

A *mechanic* is a rule of play (bisect, measure a distance, carry a sum, ...). It draws parameters, writes
the source code of one environment program, and knows how to play it well (`expert`) and poorly (`naive`).
Players see the live environment object only to read its public state; an expert uses the strategy a
player could use, never the hidden answer, wherever the game has feedback.

A fifth of all parameter tuples of each mechanic is *held out* by hash: the corpus never contains them,
the held-out suite draws from them only (`spade.embedded.heldout`).
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Params = dict[str, Any]
History = list[tuple[str, str]]
"""(action content, reply) pairs of the episode so far."""
Player = Callable[[Any, History, random.Random], str]

HELDOUT_SHARE = 5
"""One parameter tuple in this many belongs to the held-out suite."""


@dataclass(frozen=True)
class Mechanic:
    """One rule of play. `draw(rng, level)` gives parameters, level 0 easy, 1 middle, 2 hard."""

    name: str
    skill: str
    draw: Callable[[random.Random, int], Params]
    code: Callable[[Params], str]
    expert: Player
    naive: Player
    hints: tuple[str, ...]
    topics: tuple[str, ...]
    """Words that mark a document this mechanic fits."""


@dataclass(frozen=True)
class SampledProgram:
    """One program drawn from the corpus distribution."""

    mechanic: Mechanic
    level: int
    params: Params
    code: str


HEAD = """import random, re


class {name}Env:
    max_turns = {T}

    def reset(self, seed=None):
        r = random.Random(seed)
        self.t = 0
"""

STEP = """
    def step(self, action):
        self.t += 1
        m = re.search(r"\\\\boxed{(.*)}", action)
        a = m.group(1) if m else ""
"""

NUMBER = """        n = int(a) if a.isdecimal() and len(a) < 6 else 0
"""

SOLVE_NUMBER = """
    def solution(self):
        return str(self.x)
"""

SOLVE_TEXT = """
    def solution(self):
        return self.x
"""

LAST = """        return say, float(done), done, self.t >= self.max_turns, {}
"""

ONE_ANSWER = """        done = a == str(self.x)
        say = "right" if done else "wrong"
"""


def program(name: str, turns: int, reset: str, solution: str, step: str) -> str:
    """Assemble one environment program from its variable parts (each already indented)."""
    return HEAD.format(name=name, T=turns) + reset + solution + STEP + step + LAST


def is_heldout(name: str, params: Params) -> bool:
    """Whether this parameter tuple is reserved for the held-out suite."""
    text = name + json.dumps(params, sort_keys=True)
    return hashlib.sha256(text.encode()).digest()[0] % HELDOUT_SHARE == 0


def registry() -> dict[str, Mechanic]:
    """All mechanics by name."""
    from spade.embedded import mech_logic, mech_number, mech_order, mech_space

    rows = (*mech_number.MECHANICS, *mech_logic.MECHANICS, *mech_order.MECHANICS, *mech_space.MECHANICS)
    return {m.name: m for m in rows}


def tool_registry() -> dict[str, Mechanic]:
    """All tool-use mechanics by name."""
    from spade.embedded import mech_tools, mech_tools_read

    return {m.name: m for m in (*mech_tools.MECHANICS, *mech_tools_read.MECHANICS)}


def draw_params(mechanic: Mechanic, rng: random.Random, level: int, *, heldout: bool) -> Params:
    """Parameters on the asked side of the held-out split (rejection sampling)."""
    for _ in range(1000):
        params = mechanic.draw(rng, level)
        if is_heldout(mechanic.name, params) == heldout:
            return params
    raise ValueError(f"mechanic {mechanic.name!r} has no parameters with heldout={heldout} at level {level}")


LEVEL_WEIGHTS = (0.6, 0.28, 0.12)
"""Share of easy, middle and hard programs in the corpus: the Designer starts out easy on purpose."""


def sample_program(
    rng: random.Random,
    *,
    skill: str | None = None,
    name: str | None = None,
    level: int | None = None,
    tools: bool = False,
) -> SampledProgram:
    """One corpus program (never a held-out one), optionally of a given skill, mechanic or level.

    `tools` draws from the tool-use mechanics instead of the games.
    """
    rows = tool_registry() if tools else registry()
    pool = [m for m in rows.values() if skill in (None, m.skill) and name in (None, m.name)]
    mechanic = rng.choice(pool)
    if level is None:
        level = rng.choices((0, 1, 2), LEVEL_WEIGHTS)[0]
    params = draw_params(mechanic, rng, level, heldout=False)
    return SampledProgram(mechanic, level, params, mechanic.code(params))


def load(code: str) -> Any:
    """Instantiate one of OUR OWN corpus programs in this process (never model-written code)."""
    space: dict[str, Any] = {}
    if "(ToolEnv)" in code:
        from spade.envs.tools import ToolEnv

        space["ToolEnv"] = ToolEnv
    exec(compile(code, "<corpus>", "exec"), space)
    cls = next(v for k, v in space.items() if k.endswith("Env") and isinstance(v, type) and k != "ToolEnv")
    return cls()


def pick(
    level: int, easy: tuple[int, int], middle: tuple[int, int], hard: tuple[int, int]
) -> tuple[int, int]:
    """The range that belongs to a level."""
    return (easy, middle, hard)[level]
