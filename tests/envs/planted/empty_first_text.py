import random
import re


class ParityBitsEnv:
    """One parity bit for each of nine words."""

    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        rng = random.Random(seed)
        rows = [[rng.randint(0, 1) for _ in range(6)] for _ in range(9)]
        self.bits = "".join(str(sum(row) % 2) for row in rows)
        shown = " ".join("".join(map(str, row)) for row in rows)
        return " ", {}

    def step(self, action):
        found = re.search(r"\\boxed\{\s*([01]{9})\s*\}", action)
        won = bool(found) and found.group(1) == self.bits
        return "good" if won else "bad", float(won), True, False, {}

    def solution(self):
        return self.bits
