import random
import re
from dataclasses import dataclass, field


@dataclass
class State:
    total: int = 0
    turn: int = 0
    parts: list = field(default_factory=list)


class WeightUnitsEnv:
    """Add weights in kilograms and pounds; accepts 12 and 12 kg, any case."""

    max_turns = 3

    def __init__(self):
        self.state = State()

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.state = State(parts=[(rng.randint(5, 80), rng.randint(2, 9)) for _ in range(3)])
        self.state.total = sum(n * w for n, w in self.state.parts)
        text = ", ".join(f"{n} sacks of {w} kg" for n, w in self.state.parts)
        return f"A cart carries {text}. What do all sacks weigh? \\boxed{{N kg}}", {}

    def step(self, action):
        self.state.turn += 1
        found = re.search(r"\\boxed\{\s*(\d{1,6})\s*(?:kg)?\s*\}", action, re.I)
        int(action.split("{")[-1].split("}")[0].split()[0])
        won = bool(found) and int(found.group(1)) == self.state.total
        end = self.state.turn >= self.max_turns
        return ("Correct." if won else "Incorrect."), float(won), won, end and not won, {}

    def solution(self):
        return f"{self.state.total} kg"
