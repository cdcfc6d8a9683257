import random
import re

ROOT = 'A gardener crosses a chequered lawn'
STONE = 'flower beds'
A = 'right'
B = 'down'
SIDE = 7


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class LatticeEnv:
    """Count the shortest ways through a grid with forbidden points."""

    game_type = "single_turn"
    max_turns = 1

    def ways(self):
        table = {(0, 0): 1}
        for x in range(self.w + 1):
            for y in range(self.h + 1):
                if (x, y) != (0, 0):
                    table[x, y] = 0 if (x, y) in self.shut else table.get((x - 1, y), 0) + table.get((x, y - 1), 0)
        return table[self.w, self.h]

    def reset(self, seed=None):
        rng = random.Random(seed)
        while True:
            self.w, self.h = rng.randint(SIDE - 1, SIDE + 1), rng.randint(SIDE - 2, SIDE)
            points = [(x, y) for x in range(self.w + 1) for y in range(self.h + 1)][1:-1]
            self.shut = set(rng.sample(points, rng.randint(2, 4)))
            if self.ways() > 12:
                break
        blocked = ", ".join(f"({x}, {y})" for x, y in sorted(self.shut))
        return (
            f"{ROOT}, from point (0, 0) to point ({self.w}, {self.h}). Each move goes one {A} (the first number grows "
            f"by 1) or one {B} (the second number grows by 1). These points may not be touched, because of {STONE}: "
            f"{blocked}. How many different ways are there? Answer with one number in \\boxed{{}}."
        ), {}

    def step(self, action):
        right = boxed(action) == str(self.ways())
        return "Correct." if right else "That is not the number of ways.", float(right), True, False, {}

    def solution(self):
        return str(self.ways())

    def hint(self):
        return "Write at every point the sum of the numbers at the two points it can be reached from; forbidden points get none."
