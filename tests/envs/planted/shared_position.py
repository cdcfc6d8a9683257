import random
import re


class LightsFourEnv:
    """Lights out on four by four."""

    max_turns = 14
    on = set()

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        self.presses = sorted(rng.sample(range(16), rng.randint(5, 8)))
        self.on.clear()
        for cell in self.presses:
            self.flip(cell)
        return self.show() + "\nPressing a cell flips it and its neighbours. Put all lights out: \\boxed{row column}, from 1.", {}

    def flip(self, cell):
        r, c = divmod(cell, 4)
        for a, b in ((r, c), (r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            if 0 <= a < 4 and 0 <= b < 4:
                self.on ^= {4 * a + b}

    def show(self):
        return "\n".join("".join("O" if 4 * r + c in self.on else "." for c in range(4)) for r in range(4))

    def step(self, action):
        self.turn += 1
        found = re.search(r"\\boxed\{\s*([1-4])[ ,]+([1-4])\s*\}", action)
        if found:
            cell = 4 * (int(found.group(1)) - 1) + int(found.group(2)) - 1
            self.flip(cell)
            self.presses = sorted(set(self.presses) ^ {cell})
        won = not self.on
        lit = len(self.on)
        return self.show(), 1.0 if won else round(0.5 * (16 - lit) / 16, 3), won, self.turn >= self.max_turns and not won, {}

    def solution(self):
        return [f"{p // 4 + 1} {p % 4 + 1}" for p in self.presses]
