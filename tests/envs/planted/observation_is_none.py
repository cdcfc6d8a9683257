import collections
import random
import re

JUMPS = ((1, 2), (2, 1), (-1, 2), (-2, 1), (1, -2), (2, -1), (-1, -2), (-2, -1))


class KnightEnv:
    """Bring a chess knight to a square; actions are squares such as c3."""

    max_turns = 8

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        while True:
            self.here = (rng.randrange(8), rng.randrange(8))
            self.goal = (rng.randrange(8), rng.randrange(8))
            if 3 <= len(self.path()) <= 5:
                break
        return (
            f"A knight stands on {name(self.here)}. Bring it to {name(self.goal)} within 8 moves. "
            "Each action is the square it jumps to, in \\boxed{}."
        ), {}

    def path(self):
        before = {self.here: None}
        queue = collections.deque([self.here])
        while queue:
            cell = queue.popleft()
            if cell == self.goal:
                way = []
                while before[cell] is not None:
                    way.append(cell)
                    cell = before[cell]
                return way[::-1]
            for new in jumps(cell):
                if new not in before:
                    before[new] = cell
                    queue.append(new)
        return []

    def step(self, action):
        self.turn += 1
        out = self.turn >= self.max_turns
        found = re.search(r"\\boxed\{\s*([a-h])([1-8])\s*\}", action)
        cell = (ord(found.group(1)) - 97, int(found.group(2)) - 1) if found else None
        if cell is None or cell not in jumps(self.here):
            return None, 0.0, False, out, {}
        self.here = cell
        won = cell == self.goal
        return f"The knight stands on {name(cell)}.", float(won), won, out and not won, {}

    def solution(self):
        return [name(c) for c in self.path()]


def name(cell):
    return "abcdefgh"[cell[0]] + str(cell[1] + 1)


def jumps(cell):
    found = [(cell[0] + a, cell[1] + b) for a, b in JUMPS]
    return [c for c in found if 0 <= c[0] < 8 and 0 <= c[1] < 8]
