import random
import re


class FallingEnv:
    """Continue a sequence that goes down by a fixed gap."""

    gap = 5
    shown = 3
    max_turns = 2

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, object]]:
        r = random.Random(seed)
        self.x, gap = r.randint(1, 12), r.randint(1, self.gap)
        row = [self.x + gap * i for i in range(self.shown, 0, -1)]
        self.turn = 0
        return "next after " + " ".join(str(v) for v in row), {}

    def solution(self) -> str:
        return str(self.x)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        self.turn += 1
        found = re.fullmatch(r"\\boxed{(\d{1,3})}", action)
        done = found is not None and int(found.group(1)) == self.x
        return "right" if done else "wrong", float(done), done, not done and self.turn >= self.max_turns, {}
