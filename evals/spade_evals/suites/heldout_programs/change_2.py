import random
import re


class ChangeEnv:
    """Pay an exact sum where coins can come back: a coin named after paying too much is taken off."""

    coins = (7, 11, 17, 19, 20)
    plus = 0
    max_turns = 2

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, object]]:
        r = random.Random(seed)
        self.paid = self.turn = 0
        plain = {a + b for a in self.coins for b in (0, *self.coins)}
        self.goal = min(plain)
        while self.goal in plain:
            small, big = sorted(r.sample(self.coins, 2))
            self.plan = [r.choice(self.coins) for _ in range(self.plus)] + [big, small]
            self.goal = sum(self.plan) - 2 * small
        return "coins " + " ".join(str(c) for c in self.coins) + f" {self.show()} in {self.max_turns}", {}

    def show(self) -> str:
        rest = self.goal - self.paid
        return f"pay {rest}" if rest >= 0 else f"take {-rest}"

    def solution(self) -> list[str]:
        return [str(c) for c in self.plan]

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        self.turn += 1
        found = re.fullmatch(r"\\boxed{(\d{1,3})}", action)
        coin = int(found.group(1)) if found else 0
        if coin in self.coins:
            self.paid += coin if self.paid < self.goal else -coin
        done = self.paid == self.goal
        return self.show(), float(done), done, not done and self.turn >= self.max_turns, {}
