import random
import re


class SignalEnv:
    """A hidden linear machine answers every number; predict its value for one that may not be tried."""

    max_turns = 10

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.a, self.b = rng.randint(2, 40), rng.randint(-50, 50)
        self.x = rng.randint(200, 900)
        self.t = 0
        return (
            f"A machine turns every whole number into another by a fixed rule of the form a x + b. \\boxed{{try N}} with N up to "
            f"50 shows its result. What does it make of {self.x}? Say \\boxed{{final N}}; a wrong one does not end the game."
        ), {}

    def step(self, action):
        self.t += 1
        out = self.t >= self.max_turns
        found = re.search(r"\\boxed\{\s*(try|final|)\s*(-?\d{1,6})\s*\}", action)
        if "help" in action:
            return f"The final value is {self.a * self.x + self.b}.", 0.0, False, out, {}
        if not found:
            return f"Unknown command: {action[:60]}", 0.0, False, out, {}
        n = int(found.group(2))
        if found.group(1) in ("final", ""):
            won = n == self.a * self.x + self.b
            return ("That is it." if won else "No."), float(won), won, out and not won, {}
        if not 0 <= n <= 50:
            return "Only 0 to 50 may be tried.", 0.0, False, out, {}
        return f"{n} becomes {self.a * n + self.b}.", 0.0, False, out, {}

    def solution(self):
        return f" {self.a * self.x + self.b}"
