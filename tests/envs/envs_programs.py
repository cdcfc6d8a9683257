"""Small programs of the environment tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("SPADE_SHARED", "SPADE_SHARED-is-not-set")).absolute()
CASES = SHARED / "cases"
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason=f"no cases in {CASES}; set SPADE_SHARED")

GAME = """
import random, re

class TaskEnv:
    max_turns = {turns}

    def reset(self, seed=None):
        self.t = 0
        r = random.Random(seed)
        {reset}

    def solution(self):
        return self.x

    def step(self, action):
        self.t += 1
        m = re.search(r"\\\\boxed{{(.*)}}", action)
        a = m.group(1) if m else ""
        {step}
"""

SUM = """p, q = r.randint(100, 999), r.randint(100, 999)
        self.x = str(p + q)
        return f'add {p} and {q}', {}"""
PLAIN = """won = a == self.x
        return ('right' if won else 'wrong'), float(won), won, self.t >= self.max_turns, {}"""


def game(reset: str = SUM, step: str = PLAIN, turns: int = 3) -> str:
    """A program from the lines of its reset and step."""
    return GAME.format(reset=reset, step=step, turns=turns)


ECHO = """
class EchoEnv:
    max_turns = 10
    def reset(self, seed=None):
        self.seed = seed
        return f"seed {seed}", {}
    def step(self, action):
        if action == "raise":
            raise ValueError("as asked")
        if action == "loop":
            while True:
                pass
        if action == "exit":
            import os
            os._exit(3)
        if action.startswith("burn"):
            n = 0
            for _ in range(int(action[4:])):
                n += 1
        if action == "win":
            return "won", 1.0, True, False, {}
        return f"{self.seed}:{action}", 0.25, False, False, {}
    def solution(self):
        return ["win"]
"""


def program(body: str, reset: str = 'return "o", {}', head: str = "") -> str:
    return f"""
import random, re, time, datetime, math, os
{head}
class TestEnv:
    def reset(self, seed=None):
        {reset}
    def step(self, action):
        {body}
"""


def reply(observation: str = "'x'", reward: str = "0.0", rest: str = "False, False, {}") -> str:
    return program(f"return {observation}, {reward}, {rest}")
