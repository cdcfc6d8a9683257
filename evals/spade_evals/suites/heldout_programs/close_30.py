import random
import re


class CloseEnv:
    """Find a hidden number with few tries; one off is close enough."""

    top = 30
    max_turns = 3

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, object]]:
        self.x = random.Random(seed).randint(1, self.top)
        self.turn = 0
        return f"find the number from 1 to {self.top} in {self.max_turns} tries", {}

    def solution(self) -> str:
        return str(self.x)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        self.turn += 1
        found = re.fullmatch(r"\\boxed{(\d{1,3})}", action)
        n = int(found.group(1)) if found else 0
        done = abs(n - self.x) <= 1
        reply = "right" if done else "higher" if n < self.x else "lower"
        return reply, float(done), done, not done and self.turn >= self.max_turns, {}
