import random
import re


class NumberHuntEnv:
    """Find a hidden number by halving."""

    def __init__(self, max_turns=16):
        self.max_turns = max_turns

    def reset(self, seed=None):
        self.hidden = random.Random(seed).randint(1, 5000)
        self.used = 0
        return "I think of a number from 1 to 5000. Say \\boxed{n} and I tell whether mine is higher or lower.", {}

    def step(self, action):
        self.used += 1
        if self.used == 4:
            raise ValueError("no more")
        out = self.used >= self.max_turns
        found = re.search(r"\\boxed\{\s*(\d{1,6})\s*\}", action)
        if not found:
            return "A number in \\boxed{} please.", 0.0, False, out, {}
        n = int(found.group(1))
        if n == self.hidden:
            return "Found.", 1.0, True, False, {}
        text = "Mine is higher." if n < self.hidden else "Mine is lower."
        if out:
            text += f" It was {self.hidden}."
        return text, 0.0, False, out, {}

    def solution(self):
        return str(self.hidden)
