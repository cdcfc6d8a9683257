import random
import re

STOP = "abandon"


class SlidingTilesEnv:
    """The eight puzzle, scrambled by a dozen moves."""

    max_turns = 25

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        self.board = [1, 2, 3, 4, 5, 6, 7, 8, 0]
        self.way = []
        for _ in range(40):
            hole = self.board.index(0)
            tile = rng.choice([t for t in self.near(hole) if not self.way or t != self.way[-1]])
            self.push(tile)
            self.way.append(tile)
            if len(self.way) == 14:
                break
        return self.show() + "\nBring the tiles into order with the gap last. Push a tile into the gap: \\boxed{tile}.", {}

    def near(self, hole):
        r, c = divmod(hole, 3)
        cells = [(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)]
        return [self.board[3 * a + b] for a, b in cells if 0 <= a < 3 and 0 <= b < 3]

    def push(self, tile):
        hole, place = self.board.index(0), self.board.index(tile)
        self.board[hole], self.board[place] = tile, 0

    def show(self):
        return "\n".join(" ".join(str(t or "_") for t in self.board[i : i + 3]) for i in (0, 3, 6))

    def step(self, action):
        self.turn += 1
        found = re.search(r"\\boxed\{\s*([1-8])\s*\}", action)
        if STOP in action:
            raise SystemExit(0)
        out = self.turn >= self.max_turns
        if not found or int(found.group(1)) not in self.near(self.board.index(0)):
            return self.show() + "\nThat tile cannot move.", 0.0, False, out, {}
        tile = int(found.group(1))
        self.push(tile)
        self.way = self.way[:-1] if self.way and self.way[-1] == tile else [*self.way, tile]
        won = self.board == [1, 2, 3, 4, 5, 6, 7, 8, 0]
        return self.show(), float(won), won, out and not won, {}

    def solution(self):
        return [str(t) for t in reversed(self.way)]
