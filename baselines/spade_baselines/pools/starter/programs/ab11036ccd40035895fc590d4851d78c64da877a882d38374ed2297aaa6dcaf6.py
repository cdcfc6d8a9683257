import random
import re

STORY = 'A chest is buried on an island of {n} by {n} squares'
ACT = 'dig'
SIDE = 20
FAR = 'a parrot calls: {d}'
WON = 'The spade hits wood.'


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class CompassEnv:
    """Find a cell of a grid from compass directions."""

    max_turns = 7

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        self.spot = rng.randint(1, SIDE), rng.randint(1, SIDE)
        return (
            f"{STORY.format(n=SIDE)}, numbered from the west and from the south, beginning with 1. '{ACT} 4 9' tries the "
            "fourth from the west and ninth from the south. After a miss you are told in which direction it lies from there. "
            f"You have {self.max_turns} tries. Put one action in \\boxed{{}}."
        ), {}

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        found = re.fullmatch(ACT + r" (\d{1,2}) (\d{1,2})", boxed(action))
        if not found or not all(1 <= int(n) <= SIDE for n in found.groups()):
            return f"Say '{ACT} X Y' with numbers from 1 to {SIDE}.", 0.0, False, late, {}
        x, y = map(int, found.groups())
        if (x, y) == self.spot:
            return WON, 1.0, True, False, {}
        north = "north" if y < self.spot[1] else "south" if y > self.spot[1] else ""
        east = "east" if x < self.spot[0] else "west" if x > self.spot[0] else ""
        return f"Nothing; {FAR.format(d=north + east)}. '{ACT} X Y' again.", 0.0, False, late, {}

    def solution(self):
        return [f"{ACT} {self.spot[0]} {self.spot[1]}"]

    def hint(self):
        return "Halve both ranges at once: always try the middle of what is still possible."
