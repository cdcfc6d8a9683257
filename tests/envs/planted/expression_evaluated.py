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
        self.total = sum(n * p for _, n, p in rows) - self.off
        lines = [f"{n} {g} at {p} each" for g, n, p in rows]
        text = "A bill lists " + "; ".join(lines) + f". A voucher takes {self.off} off. What is to be paid? "
        return text + "Give one number in \\boxed{}.", {}

    def step(self, action):
        found = re.search(r"\\boxed\{\s*([-+\d ]+)\s*\}", action)
        won = found is not None and sum(int(p) for p in found.group(1).replace(" ", "").replace("-", "+-").split("+") if p.strip("-")) == self.total
        return ("Paid." if won else f"No, it was {self.total}."), float(won), True, False, {}

    def solution(self):
        return str(self.total)
