import random
import re


class CircleEnv:
    """Find a cell on a ring; the reply is the shorter way round, so every distance has two readings."""

    low = 11
    cells = 16
    max_turns = 3

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, object]]:
        self.high = self.low + self.cells - 1
        self.x = random.Random(seed).randint(self.low, self.high)
        self.turn = 0
        return f"measure the number on a ring from {self.low} to {self.high} in {self.max_turns} tries", {}

    def solution(self) -> str:
        return str(self.x)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        self.turn += 1
        found = re.fullmatch(r"\\boxed{(\d{1,3})}", action)
        n = int(found.group(1)) if found else 0
        gap = min((n - self.x) % self.cells, (self.x - n) % self.cells)
        done = n == self.x
        reply = "right" if done else f"off by {gap}" if self.low <= n <= self.high else "wrong"
        return reply, float(done), done, not done and self.turn >= self.max_turns, {}
