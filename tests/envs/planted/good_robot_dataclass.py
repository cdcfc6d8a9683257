from __future__ import annotations
import random, re
from dataclasses import dataclass, field
from enum import Enum, auto

class Dir(Enum):
    N = auto(); E = auto(); S = auto(); W = auto()
    @property
    def delta(self): return {Dir.N: (0, 1), Dir.E: (1, 0), Dir.S: (0, -1), Dir.W: (-1, 0)}[self]

@dataclass(frozen=True)
class Pos:
    x: int = 0
    y: int = 0
    def move(self, d: Dir) -> Pos:
        dx, dy = d.delta
        return Pos(self.x + dx, self.y + dy)

@dataclass
class RobotEnv:
    max_turns: int = 14
    pos: Pos = field(default_factory=Pos)
    goal: Pos = field(default_factory=Pos)
    turn: int = 0

    def reset(self, seed: int | None = None) -> tuple[str, dict]:
        rng = random.Random(seed)
        self.turn = 0
        self.pos = Pos()
        while True:
            self.goal = Pos(rng.randint(-4, 4), rng.randint(-4, 4))
            if abs(self.goal.x) + abs(self.goal.y) >= 4: break
        return f"A robot stands at (0, 0); its goal lies at ({self.goal.x}, {self.goal.y}). Names of moves: {', '.join(Dir.__members__)} (N raises the second coordinate). It must be told to stop at the goal by \\boxed{{stop}}.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict]:
        self.turn += 1
        out = self.turn >= self.max_turns
        match re.findall(r"boxed\{\s*(\w+)\s*\}", action):
            case ["stop"]:
                won = self.pos == self.goal
                return ("At the goal." if won else "Not there."), 1.0 if won else 0.0, True, False, {}
            case [name] if name in Dir.__members__:
                self.pos = self.pos.move(Dir[name])
                return f"At ({self.pos.x}, {self.pos.y}).", 0.0, False, out, {}
            case _:
                return "Say N, E, S, W or stop.", 0.0, False, out, {}

    def solution(self) -> list[str]:
        g = self.goal
        return ["E" if g.x > 0 else "W"] * abs(g.x) + ["N" if g.y > 0 else "S"] * abs(g.y) + ["stop"]
