import random
import re
from collections import deque

LEVEL = 1

DEPTH, BUTTONS = {1: (3, "PQRS"), 2: (4, "PQRS"), 3: (4, "PQRST")}[LEVEL]
SIZE = 4


def _spin(g):
    return tuple(zip(*g[::-1], strict=True))


def _flip(g):
    return tuple(row[::-1] for row in g)


def _shift(g):
    return g[-1:] + g[:-1]


def _swap(g):
    return (g[1], g[0], *g[2:])


def _roll(g):
    return (g[0][-1:] + g[0][:-1], *g[1:])


def _corner(g):
    rows = [list(row) for row in g]
    rows[0][0], rows[0][1], rows[1][1], rows[1][0] = g[1][0], g[0][0], g[0][1], g[1][1]
    return tuple(map(tuple, rows))


WAYS = (_spin, _flip, _shift, _swap, _roll, _corner)


class StencilPressEnv:
    """Learn what unlabelled buttons do to a picture and bring it to a given one."""

    max_turns = {1: 14, 2: 20, 3: 25}[LEVEL]

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        while True:
            cells = rng.sample("ab" * 3 + "." * 10, SIZE * SIZE)
            self.grid = tuple(tuple(cells[SIZE * r : SIZE * (r + 1)]) for r in range(SIZE))
            self.ways = dict(zip(BUTTONS, rng.sample(WAYS, len(BUTTONS)), strict=True))
            self.target = self.grid
            for _ in range(DEPTH):
                self.target = self.ways[rng.choice(BUTTONS)](self.target)
            self.start, self.word = self.grid, self.path()
            if len(self.word) == DEPTH:
                break
        return (
            f"A press alters a {SIZE} by {SIZE} picture. Each of the buttons {', '.join(BUTTONS)} always does the "
            "same to it: it turns the whole, mirrors it, moves or exchanges rows, or moves cells of one row or of "
            f"one corner. Which does what has to be seen.\nNow:\n{self.drawn(self.grid)}\nWanted:\n"
            f"{self.drawn(self.target)}\nPress one button a turn, \\boxed{{press P}}; when the picture is the wanted "
            f"one, hand it in with \\boxed{{hand in}}, which ends the order. {self.max_turns} turns."
        ), {}

    def drawn(self, grid):
        return "\n".join("".join(row) for row in grid)

    def path(self):
        queue, seen = deque([(self.grid, "")]), {self.grid}
        while queue:
            grid, word = queue.popleft()
            if grid == self.target:
                return word
            if len(word) >= DEPTH:
                continue
            for name in BUTTONS:
                after = self.ways[name](grid)
                if after not in seen:
                    seen.add(after)
                    queue.append((after, word + name))
        return ""

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        said = re.fullmatch(r"\\boxed\{\s*(?:press\s+([a-z])|hand in)\s*\}", action.strip().lower())
        if said and said.group(1) is None:
            right = self.grid == self.target
            return ("The customer nods." if right else "The customer frowns."), float(right), True, False, {}
        name = said.group(1).upper() if said else ""
        if not name or name not in BUTTONS:
            text = f"Invalid. The press has buttons {', '.join(BUTTONS)}: 'press X'; or 'hand in'. Box it."
            return text, 0.0, False, late, {}
        self.grid = self.ways[name](self.grid)
        text = f"After {name}:\n{self.drawn(self.grid)}\nWanted:\n{self.drawn(self.target)}\n"
        return (
            text + f"{self.max_turns - self.turn} turns left ('press X' or 'hand in').",
            0.0,
            False,
            late,
            {},
        )

    def solution(self):
        return [f"press {name}" for name in (self.word if self.grid == self.start else self.path())] + [
            "hand in"
        ]

    def hint(self):
        return "Press each button once and compare the pictures; most effects come back after four presses or fewer."
