import random
import re

LEVEL = 1

LEGS = {1: 5, 2: 8, 3: 11}[LEVEL]
KINDS = {1: ("left", "right"), 2: ("left", "right", "round"), 3: ("left", "right", "round", "face")}[LEVEL]
TWINS = (4, 8) if LEVEL == 3 else ()
COMPASS = ("north", "east", "south", "west")
UNIT = ((0, 1), (1, 0), (0, -1), (-1, 0))


class DeadReckoningEnv:
    """Follow a courier's relative directions and say where the walk ends."""

    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        rng = random.Random(seed)
        heading = start = rng.randrange(4)
        x = y = 0
        told = []
        for leg in range(LEGS):
            kind, steps = rng.choice(KINDS), rng.randint(2, 19)
            if leg in TWINS:
                x, heading = -x, -heading % 4
                told.append(
                    "swap places with a twin who has walked the mirror image of the whole way (east and west "
                    f"exchanged), and from there, facing as the twin does, walk {steps} blocks"
                )
            elif leg == 0:
                told.append(f"walk {steps} blocks straight on")
            elif kind == "face":
                heading = rng.randrange(4)
                told.append(f"turn to face {COMPASS[heading]} and walk {steps} blocks")
            elif kind == "round":
                heading = (heading + 2) % 4
                told.append(f"turn on your heel and walk {steps} blocks")
            else:
                heading = (heading + (1 if kind == "right" else 3)) % 4
                told.append(f"turn {kind} and walk {steps} blocks")
            x, y = x + steps * UNIT[heading][0], y + steps * UNIT[heading][1]
        self.end = (x, y)
        return (
            f"A courier stands at the fountain facing {COMPASS[start]} and is told: {'; then '.join(told)}.\n"
            "How many blocks east and how many blocks north of the fountain does the courier end up? West and south "
            "count as negative. One answer, \\boxed{EAST NORTH}, two whole numbers with a space between them."
        ), {}

    def step(self, action):
        said = re.fullmatch(r"\\boxed\{\s*(-?\d{1,4})[\s,]+(-?\d{1,4})\s*\}", action.strip())
        if said is None:
            return "Invalid answer: two whole numbers were asked for.", 0.0, True, False, {}
        right = (int(said.group(1)), int(said.group(2))) == self.end
        return (
            ("That is the spot." if right else "The courier is somewhere else."),
            float(right),
            True,
            False,
            {},
        )

    def solution(self):
        return f"{self.end[0]} {self.end[1]}"

    def hint(self):
        return "Keep three things after each leg: blocks east, blocks north, and the direction faced."
