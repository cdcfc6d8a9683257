import random
import re

LEVEL = 1

CELLS, AFTER = {1: (9, 1), 2: (10, 2), 3: (12, 3)}[LEVEL]


class AutomatonLabEnv:
    """Infer how a ring of cells changes from one generation to the next, and foresee a later generation."""

    max_turns = {1: 5, 2: 6, 3: 7}[LEVEL]

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        while True:
            if LEVEL == 3:
                self.table = [rng.randint(0, 1) for _ in range(8)]
            else:  # depends on the number of live cells among the three, and on the middle one
                counts = [[rng.randint(0, 1) for _ in range(3)] for _ in range(2)]
                self.table = [counts[k >> 1 & 1][(k >> 2) + (k & 1)] for k in range(8)]
            self.first = [rng.randint(0, 1) for _ in range(CELLS)]
            rows = [self.first]
            for _ in range(AFTER):
                rows.append(self.next(rows[-1]))
            if (
                2 <= sum(self.table) <= 6
                and len(set(map(tuple, rows))) == len(rows)
                and 2 < sum(rows[-1]) < CELLS - 2
            ):
                self.last = rows[-1]
                break
        law = "its own state and its two neighbours' states"
        if LEVEL < 3:
            law = "its own state and how many of its two neighbours live"
        return (
            f"In the dish sit {CELLS} cells in a ring, 1 alive and 0 dead, written as a row (its ends are "
            f"neighbours). A cell's next state depends on {law}, by a rule that is the same everywhere and "
            f"always. 'culture' with {CELLS} digits shows you the generation that follows any row you like. Foresee "
            f"what the row {self.text(self.first)} has become after {AFTER} generation{'s' * (AFTER > 1)}: 'foresee' with {CELLS} "
            "digits, once. That very row cannot be cultured.\n"
            f"Each turn one command in \\boxed{{}}; {self.max_turns} turns."
        ), {}

    def text(self, row):
        return "".join(map(str, row))

    def next(self, row):
        return [self.table[row[k - 1] << 2 | row[k] << 1 | row[(k + 1) % CELLS]] for k in range(CELLS)]

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        said = re.fullmatch(r"\\boxed\{\s*(culture|foresee)\s+([01 ]+?)\s*\}", action.strip().lower())
        row = [int(c) for c in said.group(2) if c != " "] if said else []
        if len(row) != CELLS or (said.group(1) == "culture" and row == self.first):
            text = f"Invalid. 'culture' another row or 'foresee', with {CELLS} digits 0 or 1, in \\boxed{{}}."
            return text, 0.0, False, late, {}
        if said.group(1) == "foresee":
            right = row == self.last
            return (
                ("The dish agrees." if right else "The dish looks different."),
                float(right),
                True,
                False,
                {},
            )
        text = f"{self.text(row)} is followed by {self.text(self.next(row))}. {self.max_turns - self.turn} turns left."
        return text + " 'culture' or 'foresee' in \\boxed{}.", 0.0, False, late, {}

    def solution(self):
        rows = [row[:CELLS] for row in ("0001011100010111", "0010011101101000", "0110100100110101")]
        rows = [row for row in rows if row != self.text(self.first) and not self.turn]
        return [*(f"culture {row}" for row in rows[:2]), f"foresee {self.text(self.last)}"]

    def hint(self):
        return "Culture a row that holds all eight neighbourhoods of three cells and read the rule off the result."
