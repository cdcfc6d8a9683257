import fractions
import random
import re


class FractionSumEnv:
    """Add three fractions; any equal fraction counts."""

    max_turns = 3

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.t = 0
        parts = [fractions.Fraction(rng.randint(1, 9), rng.randint(5, 13)) for _ in range(3)]
        self.x = sum(parts)
        return "hm " * (parts[0].denominator % 5) + f"{self.x} is what must come out. Add " + ", ".join(map(str, parts)) + ". Give a fraction p/q in \\boxed{}.", {}

    def step(self, action):
        self.t += 1
        found = re.search(r"\\boxed\{\s*(\d{1,6})\s*(?:/\s*([1-9]\d{0,6}))?\s*\}", action)
        said = fractions.Fraction(int(found.group(1)), int(found.group(2) or 1)) if found else None
        won = said == self.x
        return ("Yes." if won else "No."), float(won), won, self.t >= 3 and not won, {}

    def solution(self):
        return str(self.x)
