import random
import re


class EvenEnv:
    """Find an even number with too few tries for those who also ask odd ones."""

    top = 36
    max_turns = 4

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, object]]:
        self.x = 2 * random.Random(seed).randint(1, self.top // 2)
        self.turn = 0
        return f"find the number from 2 to {self.top} in {self.max_turns} tries", {}

    def solution(self) -> str:
        return str(self.x)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        self.turn += 1
        found = re.fullmatch(r"\\boxed{(\d{1,3})}", action)
        n = int(found.group(1)) if found else 0
        done = n == self.x
        reply = "right" if done else "higher" if n < self.x else "lower"
        return reply, float(done), done, not done and self.turn >= self.max_turns, {}
