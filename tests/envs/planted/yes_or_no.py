import random
import re


class PriceTotalEnv:
    """A bill with a discount; one number."""

    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        rng = random.Random(seed)
        goods = rng.sample(["pens", "books", "lamps", "chairs", "mugs", "maps"], 3)
        rows = [(g, rng.randint(2, 19), rng.randint(3, 60)) for g in goods]
        self.off = rng.randint(5, 40)
        total = sum(n * p for _, n, p in rows) - self.off
        self.total = "yes" if total % 2 else "no"
        lines = [f"{n} {g} at {p} each" for g, n, p in rows]
        text = "A bill lists " + "; ".join(lines) + f". A voucher takes {self.off} off. Is the sum to be paid odd? "
        return text + "Give yes or no in \\boxed{}.", {}

    def step(self, action):
        found = re.search(r"\\boxed\{\s*(\w+)\s*\}", action)
        won = found is not None and found.group(1) == self.total
        return ("Paid." if won else f"No, it was {self.total}."), float(won), True, False, {}

    def solution(self):
        return self.total
