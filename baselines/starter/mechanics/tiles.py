SKILL = "Spatial Reasoning"
VARIANTS = [
    {"THING": "A square tile is printed with letters", "MOVES": ["turn right", "turn left", "mirror left-right", "mirror top-bottom"], "SIDE": 4, "STEPS": 4},
    {"THING": "A window of coloured panes, one letter a pane, hangs in a frame", "MOVES": ["turn right", "half turn", "swap the outer columns", "swap the outer rows"], "SIDE": 3, "STEPS": 5},
    {"THING": "A punch card of letters is fed into a machine", "MOVES": ["turn left", "mirror left-right", "swap the outer rows", "turn right"], "SIDE": 4, "STEPS": 5},
]


class TilesEnv:
    """Turn and mirror a square of letters in the mind and read one row of the result."""

    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        rng = random.Random(seed)
        while True:
            letters = rng.sample("ABCDEFGHKLMNOPRSTUVWXYZ", SIDE * SIDE)
            start = [letters[i * SIDE : (i + 1) * SIDE] for i in range(SIDE)]
            done, grid = [rng.choice(MOVES) for _ in range(rng.randint(STEPS - 1, STEPS + 1))], start
            for move in done:
                grid = self.moved(grid, move)
            self.row = rng.randrange(SIDE)
            self.answer = "".join(grid[self.row])
            lines = ["".join(r) for r in start]
            if self.answer not in lines and self.answer[::-1] not in lines:
                break
        rows = " / ".join("".join(r) for r in start)
        return (
            f"{THING}; its rows from top to bottom are {rows}. A turn is a quarter turn, right means clockwise; "
            f"mirror left-right exchanges left and right. One after the other, this is done: {'; '.join(done)}. "
            f"What does row {self.row + 1} from the top read then, from left to right? Answer in \\boxed{{}}."
        ), {}

    def moved(self, grid, move):
        if move == "turn right":
            return [list(r) for r in zip(*grid[::-1])]
        if move == "turn left":
            return [list(r) for r in zip(*grid)][::-1]
        if move == "half turn":
            return [r[::-1] for r in grid[::-1]]
        if move == "mirror left-right":
            return [r[::-1] for r in grid]
        if move == "mirror top-bottom":
            return grid[::-1]
        if move == "swap the outer rows":
            return [grid[-1], *grid[1:-1], grid[0]]
        return [[r[-1], *r[1:-1], r[0]] for r in grid]

    def step(self, action):
        right = boxed(action) == self.answer.lower()
        return "So it is." if right else "It reads otherwise.", float(right), True, False, {}

    def solution(self):
        return self.answer

    def hint(self):
        return "Draw the whole square again after every move instead of following single letters."
