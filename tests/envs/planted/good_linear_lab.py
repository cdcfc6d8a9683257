import random
import re


class LinearLabEnv:
    """Two unknown strengths, found by experiments."""

    max_turns = 6

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.p, self.q = rng.randint(2, 30), rng.randint(2, 30)
        self.t = 0
        return (
            "Powder P and powder Q heat water by unknown whole degrees a spoon. \\boxed{test A B} stirs in A spoons of P and "
            "B of Q, 0 to 5 each, and tells the sum of all degrees and of a draught of 3. \\boxed{answer X Y} names the degrees "
            "of P and Q and ends the game."
        ), {}

    def step(self, action):
        self.t += 1
        out = self.t >= self.max_turns
        found = re.search(r"\\boxed\{\s*(test|answer)\s+(\d{1,3})\s+(\d{1,3})\s*\}", action)
        if not found:
            return "Say test A B or answer X Y.", 0.0, False, out, {}
        a, b = int(found.group(2)), int(found.group(3))
        if found.group(1) == "answer":
            won = (a, b) == (self.p, self.q)
            return ("Right." if won else "Wrong."), float(won), True, False, {}
        if a > 5 or b > 5:
            return "At most 5 spoons.", 0.0, False, out, {}
        return f"The water warms by {a * self.p + b * self.q - 3} degrees.", 0.0, False, out, {}

    def solution(self):
        return f"answer {self.p} {self.q}"
