import random
import re


class SpotsEnv:
    """Measure two hidden spots, one after the other, with one budget of tries for both."""

    top = 12
    max_turns = 5

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, object]]:
        r = random.Random(seed)
        self.left = [r.randint(1, self.top), r.randint(1, self.top)]
        self.turn = 0
        return f"measure 2 spots from 1 to {self.top} in {self.max_turns} tries", {}

    def solution(self) -> list[str]:
        return [str(x) for x in self.left]

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        self.turn += 1
        found = re.fullmatch(r"\\boxed{(\d{1,3})}", action)
        n = int(found.group(1)) if found else 0
        reply = f"off by {abs(n - self.left[0])}" if 1 <= n <= self.top else "wrong"
        if n == self.left[0]:
            self.left = self.left[1:]
            reply = f"right measure the next spot from 1 to {self.top}" if self.left else "right"
        done = not self.left
        return reply, float(done), done, not done and self.turn >= self.max_turns, {}
