import itertools
import random
import re

LEVEL = 1

SIZE, MIRRORS = {1: (5, 1), 2: (5, 2), 3: (5, 3)}[LEVEL]
MOVES = {"top": (1, 0), "bottom": (-1, 0), "left": (0, 1), "right": (0, -1)}


class MirrorBoxEnv:
    """Find slanted mirrors inside a closed box by sending light through it."""

    max_turns = {1: 7, 2: 12, 3: 16}[LEVEL]

    def reset(self, seed=None):
        rng = random.Random(seed)
        cells = rng.sample(list(itertools.product(range(1, SIZE + 1), repeat=2)), MIRRORS)
        self.mirrors = {cell: rng.choice("/\\") for cell in cells}
        self.turn = 0
        many = "one mirror" if MIRRORS == 1 else f"{MIRRORS} mirrors"
        return (
            f"A closed box is divided into {SIZE} rows and {SIZE} columns, row 1 at the top, column 1 at the left. "
            f"Inside stand {many}, each across one cell: 'rising' runs from the cell's lower left to its upper "
            "right corner, 'falling' from its upper left to its lower right. A ray sent in at a side flies "
            "straight, is turned by a right angle at each mirror, and comes out somewhere.\n"
            "Send one in with \\boxed{ray SIDE K}: SIDE is top, bottom, left or right, K the column or row there. "
            "In the end give every mirror as row, column, kind, like \\boxed{mirrors 2 3 rising} or, for several, "
            "\\boxed{mirrors 2 3 rising, 4 1 falling}. You may do that once; whatever answers all rays as this box "
            f"does is accepted. {self.max_turns} turns."
        ), {}

    def trace(self, mirrors, side, k):
        dr, dc = MOVES[side]
        r, c = {"top": (1, k), "bottom": (SIZE, k), "left": (k, 1), "right": (k, SIZE)}[side]
        while 1 <= r <= SIZE and 1 <= c <= SIZE:
            kind = mirrors.get((r, c))
            if kind == "/":
                dr, dc = -dc, -dr
            elif kind == "\\":
                dr, dc = dc, dr
            r, c = r + dr, c + dc
        if r < 1 or r > SIZE:
            return ("top" if r < 1 else "bottom"), c
        return ("left" if c < 1 else "right"), r

    def all_rays(self, mirrors):
        return [self.trace(mirrors, side, k) for side in MOVES for k in range(1, SIZE + 1)]

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        text = re.sub(r"^\\boxed\{|\}$", "", action.strip()).strip().lower()
        ray = re.fullmatch(r"ray\s+(top|bottom|left|right)\s+(\d)", text)
        if ray and 1 <= int(ray.group(2)) <= SIZE:
            side, k = self.trace(self.mirrors, ray.group(1), int(ray.group(2)))
            line = "column" if side in ("top", "bottom") else "row"
            left = self.max_turns - self.turn
            answer = f"The ray leaves at the {side}, {line} {k}. {left} turns left: ray or mirrors, in \\boxed{{}}."
            return answer, 0.0, False, late, {}
        parts = [re.fullmatch(r"\s*(\d)\s+(\d)\s+(rising|falling)\s*", p) for p in text[7:].split(",")]
        if text.startswith("mirrors") and all(parts):
            said = {(int(p[1]), int(p[2])): "/" if p[3] == "rising" else "\\" for p in parts}
            inside = all(1 <= r <= SIZE and 1 <= c <= SIZE for r, c in said)
            if inside and len(said) == len(parts) == MIRRORS:
                right = self.all_rays(said) == self.all_rays(self.mirrors)
                reply = (
                    "You open the box: just so." if right else "You open the box: it looks different inside."
                )
                return reply, float(right), True, False, {}
        reply = f"Invalid. Write 'ray SIDE K', or 'mirrors' with {MIRRORS} entries ROW COLUMN KIND, in \\boxed{{}}."
        return reply, 0.0, False, late, {}

    def solution(self):
        kinds = {"/": "rising", "\\": "falling"}
        found = ", ".join(f"{r} {c} {kinds[k]}" for (r, c), k in sorted(self.mirrors.items()))
        return ["ray top 1", "ray left 2", "ray top 3", f"mirrors {found}"]

    def hint(self):
        return "A ray that crosses straight clears its line; one that is turned tells the row and the column at once."
