import random
import re

LEVEL = 1

ROWS, COLUMNS, COLOURS = {1: (7, 11, 5), 2: (9, 12, 7), 3: (11, 13, 11)}[LEVEL]
LETTERS = "BCDFGHJKLMN"


class FlawedMosaicEnv:
    """Find the one tile that does not follow the pattern of its mosaic."""

    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        rng = random.Random(seed)
        down, across = rng.randrange(1, COLOURS), rng.randrange(1, COLOURS)
        mixed = rng.randrange(1, COLOURS) if LEVEL > 1 else 0
        square = rng.randrange(1, COLOURS) if LEVEL > 2 else 0
        start = rng.randrange(COLOURS)
        names = rng.sample(LETTERS[:COLOURS], COLOURS)

        def tile(r, c):
            return (start + down * r + across * c + mixed * r * c + square * c * c) % COLOURS

        grid = [[tile(r, c) for c in range(COLUMNS)] for r in range(ROWS)]
        self.flaw = (rng.randrange(ROWS), rng.randrange(COLUMNS))
        r, c = self.flaw
        grid[r][c] = (grid[r][c] + rng.randrange(1, COLOURS)) % COLOURS
        drawn = "\n".join("".join(names[k] for k in row) for row in grid)
        return (
            f"A floor is laid with tiles of {COLOURS} colours, one letter each. The colours follow a strict rule, "
            "the same all over the floor: within a row they return regularly, and each row is related to the row "
            f"above in the same manner. One tile was replaced by a tile of another colour.\n{drawn}\n"
            f"Which one? Answer once with its row (1 to {ROWS} from the top) and its column (1 to {COLUMNS} from the "
            "left), as \\boxed{ROW COLUMN}."
        ), {}

    def step(self, action):
        said = re.fullmatch(r"\\boxed\{\s*(\d{1,2})[\s,]+(\d{1,2})\s*\}", action.strip())
        if said is None:
            return "Invalid answer: a row and a column were asked for.", 0.0, True, False, {}
        right = (int(said.group(1)) - 1, int(said.group(2)) - 1) == self.flaw
        return (
            ("That tile comes out." if right else "That tile is in its place."),
            float(right),
            True,
            False,
            {},
        )

    def solution(self):
        return f"{self.flaw[0] + 1} {self.flaw[1] + 1}"

    def hint(self):
        return "Number the colours in the order of the cleanest row and look how neighbouring rows differ."
