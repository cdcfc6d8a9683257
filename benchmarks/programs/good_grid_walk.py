"""A walk through a grid with walls: each step draws the grid and searches it, a tenth of a millisecond."""

import collections
import random

SIZE = 9
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


class YardEnv:
    max_turns = 30

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        cells = [(row, column) for row in range(SIZE) for column in range(SIZE)]
        while True:
            self.walls = set(rng.sample(cells, 20))
            self.here, self.goal = rng.sample([c for c in cells if c not in self.walls], 2)
            if self.distances().get(self.here, 0) >= 4:
                return self.drawing() + "\nReach G with \\boxed{up|down|left|right}.", {}

    def step(self, action):
        self.turn += 1
        for name, move in MOVES.items():
            if name in action:
                there = self.here[0] + move[0], self.here[1] + move[1]
                if self.free(there):
                    self.here = there
                break
        won = self.here == self.goal
        text = f"{self.drawing()}\ndistance {self.distances()[self.here]}"
        return text, float(won), won, not won and self.turn >= self.max_turns, {}

    def solution(self):
        path, here, far = [], self.here, self.distances()
        while here != self.goal:
            for name, move in MOVES.items():
                there = here[0] + move[0], here[1] + move[1]
                if far.get(there, SIZE**2) < far[here]:
                    path.append(f"\\boxed{{{name}}}")
                    here = there
                    break
        return path

    def free(self, cell):
        return 0 <= cell[0] < SIZE and 0 <= cell[1] < SIZE and cell not in self.walls

    def distances(self):
        """Steps to the goal from every cell that can reach it."""
        found, queue = {self.goal: 0}, collections.deque([self.goal])
        while queue:
            here = queue.popleft()
            for move in MOVES.values():
                there = here[0] + move[0], here[1] + move[1]
                if self.free(there) and there not in found:
                    found[there] = found[here] + 1
                    queue.append(there)
        return found

    def drawing(self):
        def sign(cell):
            return "P" if cell == self.here else "G" if cell == self.goal else ".#"[cell in self.walls]

        return "\n".join("".join(sign((row, column)) for column in range(SIZE)) for row in range(SIZE))
