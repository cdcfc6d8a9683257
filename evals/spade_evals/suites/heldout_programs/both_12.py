import random
import re


class BothEnv:
    """Give the sum of two numbers, then their difference. One slip is allowed in all."""

    top = 12
    max_turns = 3

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, object]]:
        r = random.Random(seed)
        self.low = r.randint(1, self.top)
        self.high = self.low + r.randint(1, self.top)
        self.turn = self.stage = 0
        return self.show(), {}

    def show(self) -> str:
        if self.stage == 0:
            return f"add {self.low} and {self.high}"
        return f"take {self.low} from {self.high}"

    def solution(self) -> list[str]:
        return [str(self.high + self.low), str(self.high - self.low)][self.stage :]

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        self.turn += 1
        found = re.fullmatch(r"\\boxed{(\d{1,3})}", action)
        wanted = self.high - self.low if self.stage else self.high + self.low
        hit = found is not None and int(found.group(1)) == wanted
        self.stage += hit
        done = self.stage == 2
        reply = "right" if done else f"right {self.show()}" if hit else "wrong"
        return reply, float(done), done, not done and self.turn >= self.max_turns, {}
