import random
import re


class DiceTableEnv:
    """Uses the module's own generator, seeded in reset."""

    max_turns = 2

    def reset(self, seed=None):
        random.seed(seed)
        self.t = 0
        rolls = [random.randint(1, 6) for _ in range(12)]
        self.x = sum(r * (i + 1) for i, r in enumerate(rolls))
        return f"Dice: {rolls}. Multiply each roll by its place, counted from 1, and add up. \\boxed{{n}}", {}

    def step(self, action):
        self.t += 1
        found = re.search(r"\\boxed\{\s*(\d+)\s*\}", action[:100])
        won = bool(found) and int(found.group(1)) == self.x
        return ("Yes" if won else "No"), 1 if won else 0, won, self.t >= 2 and not won, {"turn": self.t}

    def solution(self):
        return str(self.x)
