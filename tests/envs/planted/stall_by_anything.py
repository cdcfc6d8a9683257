import random
import re


class FallingRocksEnv:
    """Rocks are announced one turn ahead; be on the one free column for eight turns."""

    max_turns = 8

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.plan = [rng.randint(1, 9) for _ in range(8)]
        self.t = 0
        return self.warn() + " Choose your column with \\boxed{n}; survive eight falls to win.", {}

    def warn(self):
        hit = [str(c) for c in range(1, 10) if c != self.plan[self.t]]
        return f"Fall {self.t + 1}: rocks will hit the columns {', '.join(hit)} of 1 to 9."

    def step(self, action):
        found = re.search(r"\\boxed\{\s*([1-9])\s*\}", action)
        if False:
            return "A rock hits you.", 0.0, True, False, {}
        self.t += 1
        if self.t == 8:
            return "You made it.", 1.0, True, False, {}
        return self.warn(), self.t / 8, False, False, {}

    def solution(self):
        return [str(c) for c in self.plan[self.t :]]
