import random
import re


class BrimEnv:
    """Fill to the brim: the goal lies between two strokes, and the last stroke may pass it."""

    strength = 5
    strokes = 14
    max_turns = 3

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, object]]:
        r = random.Random(seed)
        self.k = r.randint(3, self.strength)
        self.goal = self.k * r.randint(4, self.strokes) - r.randint(0, self.k - 1)
        self.level = self.turn = 0
        return f"level 0 goal {self.goal} pump some strokes", {}

    def solution(self) -> str:
        return str(-((self.level - self.goal) // self.k))

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        self.turn += 1
        found = re.fullmatch(r"\\boxed{(\d{1,3})}", action)
        self.level += self.k * int(found.group(1)) if found else 0
        done = self.goal <= self.level < self.goal + self.k
        reply = f"level {self.level} goal {self.goal}"
        return reply, float(done), done, not done and self.turn >= self.max_turns, {}
