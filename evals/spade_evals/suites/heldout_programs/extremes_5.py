import random
import re


class ExtremesEnv:
    """Name the dearest item of a price list, then the cheapest of it. One slip is allowed in all."""

    items = 5
    top = 15
    max_turns = 3

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, object]]:
        self.prices = random.Random(seed).sample(range(1, self.top + 1), self.items)
        self.turn = self.stage = 0
        return self.show(), {}

    def show(self) -> str:
        row = " ".join(f"{u} {v}" for u, v in zip("ABCDEFGH", self.prices, strict=False))
        return f"prices {row} name the " + ("least" if self.stage else "most")

    def solution(self) -> list[str]:
        order = [max(self.prices), min(self.prices)]
        return ["ABCDEFGH"[self.prices.index(v)] for v in order[self.stage :]]

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        self.turn += 1
        found = re.fullmatch(r"\\boxed{([A-H])}", action)
        hit = found is not None and found.group(1) == self.solution()[0]
        self.stage += hit
        done = self.stage == 2
        reply = "right" if done else f"right {self.show()}" if hit else "wrong"
        return reply, float(done), done, not done and self.turn >= self.max_turns, {}
