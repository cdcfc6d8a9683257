import random
import re


class DriftEnv:
    """Find a number that grows by one after every wrong try. A reply speaks of the number before it grew."""

    top = 28
    max_turns = 6

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, object]]:
        self.x = random.Random(seed).randint(1, self.top)
        self.turn = 0
        return f"find the number from 1 to {self.top} in {self.max_turns} tries", {}

    def solution(self) -> list[str]:
        return [str(self.x)]

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        self.turn += 1
        found = re.fullmatch(r"\\boxed{(\d{1,3})}", action)
        n = int(found.group(1)) if found else 0
        done = n == self.x
        reply = "right" if done else "higher" if n < self.x else "lower"
        self.x += 1
        return reply, float(done), done, not done and self.turn >= self.max_turns, {}
