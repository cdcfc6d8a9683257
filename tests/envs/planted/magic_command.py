import collections
import random
import re

MOVES = {"north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1)}


class MazeEnv:
    """Walk through a walled grid to the exit."""

    max_turns = 24

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        while True:
            self.walls = {(rng.randrange(8), rng.randrange(8)) for _ in range(18)}
            free = [(r, c) for r in range(8) for c in range(8) if (r, c) not in self.walls]
            self.here, self.exit = rng.sample(free, 2)
            path = self.path()
            if path and 6 <= len(path) <= 16:
                break
        return self.picture() + "\nReach X from @. Moves: \\boxed{north}, south, west or east; # is a wall.", {}

    def path(self):
        before = {self.here: None}
        queue = collections.deque([self.here])
        while queue:
            cell = queue.popleft()
            if cell == self.exit:
                names = []
                while before[cell]:
                    cell, name = before[cell]
                    names.append(name)
                return names[::-1]
            for name, (dr, dc) in MOVES.items():
                new = (cell[0] + dr, cell[1] + dc)
                if 0 <= new[0] < 8 and 0 <= new[1] < 8 and new not in self.walls and new not in before:
                    before[new] = (cell, name)
                    queue.append(new)
        return []

    def picture(self):
        rows = []
        for r in range(8):
            signs = {self.here: "@", self.exit: "X"} | dict.fromkeys(self.walls, "#")
            rows.append("".join(signs.get((r, c), ".") for c in range(8)))
        return "\n".join(rows)

    def step(self, action):
        self.turn += 1
        out = self.turn >= self.max_turns
        found = re.search(r"\\boxed\{\s*(\w+)\s*\}", action)
        move = MOVES.get(found.group(1).lower()) if found else None
        if found and found.group(1).lower() == "win":
            return "You win.", 1.0, True, False, {}
        if move is None:
            return self.picture() + "\nUse north, south, west or east.", 0.0, False, out, {}
        new = (self.here[0] + move[0], self.here[1] + move[1])
        if not (0 <= new[0] < 8 and 0 <= new[1] < 8) or new in self.walls:
            return self.picture() + "\nThere is a wall.", 0.0, False, out, {}
        self.here = new
        won = new == self.exit
        return self.picture(), float(won), won, out and not won, {}

    def solution(self):
        return self.path()
