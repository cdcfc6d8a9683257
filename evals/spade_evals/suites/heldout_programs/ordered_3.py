import random
import re


class OrderedEnv:
    """Pack a list in its own order: an item out of turn is not taken. One slip is allowed in all."""

    goods = ("red", "blue", "green", "white")
    count = 3
    max_turns = 3 + 1

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, object]]:
        r = random.Random(seed)
        self.need = [r.choice(self.goods) for _ in range(self.count)]
        self.turn = 0
        return self.show(), {}

    def show(self) -> str:
        return "still need " + " ".join(self.need)

    def solution(self) -> list[str]:
        return list(self.need)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        self.turn += 1
        found = re.fullmatch(r"\\boxed{([a-z]+)}", action)
        if found and self.need and found.group(1) == self.need[0]:
            self.need = self.need[1:]
        done = not self.need
        return self.show(), float(done), done, not done and self.turn >= self.max_turns, {}
