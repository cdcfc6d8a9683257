import random
import re

LEVEL = 1

LENGTHS, MOST = {
    1: ((2, 3, 4, 5, 6, 7), 104),
    2: ((4, 5, 6, 7, 8, 9, 10, 11, 12, 13), 1000),
    3: ((4, 6, 9, 10, 12, 14, 15, 16, 18, 20, 21, 25, 27), 9000),
}[LEVEL]


class BeadRowsEnv:
    """Learn how many beads lie in a bag from what is left over when they are laid out in rows."""

    max_turns = 5

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.beads = rng.randint(MOST // 10, MOST)
        self.turn = 0
        self.used = []
        return (
            f"A bag holds at most {MOST} glass beads. The jeweller will not count them for you, but he lays all of "
            "them out in rows of equal length and tells you how many are left over at the end. The trays he has "
            f"make rows of {', '.join(map(str, LENGTHS))}; each tray is used once.\n"
            f"Write \\boxed{{rows K}} to have them laid out in rows of K, and \\boxed{{beads N}} to say how many "
            f"there are. You can say it once. There are {self.max_turns} turns in all, that one included."
        ), {}

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        said = re.fullmatch(r"\\boxed\{\s*(rows|beads)\s+(\d{1,6})\s*\}", action.strip(), re.I)
        if said is None:
            return "Invalid. He shrugs: it must be 'rows K' or 'beads N' in \\boxed{}.", 0.0, False, late, {}
        number = int(said.group(2))
        if said.group(1).lower() == "beads":
            right = number == self.beads
            return (
                ("Right to the bead." if right else "No, that is not the number."),
                float(right),
                True,
                False,
                {},
            )
        if number not in LENGTHS or number in self.used:
            return f"Invalid. There is no unused tray for rows of {number}.", 0.0, False, late, {}
        self.used.append(number)
        over = self.beads % number
        left = self.max_turns - self.turn
        text = f"In rows of {number}, {over} left over. {left} turns remain: 'rows K' or 'beads N' in \\boxed{{}}."
        return text, 0.0, False, late, {}

    def solution(self):
        trays = {1: (4, 5, 7), 2: (9, 11, 13), 3: (16, 25, 27)}[LEVEL]
        return [f"rows {k}" for k in trays if k not in self.used] + [f"beads {self.beads}"]

    def hint(self):
        return (
            "Choose row lengths without a common divisor whose product exceeds the largest possible number."
        )
