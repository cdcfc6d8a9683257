import random
import re

WHAT = 'stones by hardness, the hardest first'
ASK = 'scratch'
NAMES = ['agate', 'beryl', 'coral', 'flint', 'garnet', 'jade']
END = 'order'
TURNS = 13


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class RankEnv:
    """Put things in order by comparing two at a time."""

    max_turns = TURNS

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        self.order = rng.sample(NAMES, len(NAMES))
        one, two, three, four = rng.sample(NAMES, 4)
        known = [sorted(pair, key=self.order.index) for pair in ((one, two), (three, four))]
        return (
            f"Order these {WHAT}: {', '.join(NAMES)}. Known already: {known[0][0]} comes before {known[0][1]}, and {known[1][0]} before {known[1][1]}. '{ASK} {NAMES[0]} {NAMES[1]}' tells which of the two comes first. "
            f"'{END}' followed by all names in your order, separated by spaces, ends the game. You have {self.max_turns} turns in all. "
            "Put one action in \\boxed{}."
        ), {}

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        word, *names = boxed(action).split() or [""]
        if word == END and sorted(names) == sorted(NAMES):
            right = names == self.order
            return "All in place." if right else "Not all are in place.", float(right), True, False, {}
        if word == ASK and len(names) == 2 and names[0] != names[1] and set(names) <= set(NAMES):
            first = min(names, key=self.order.index)
            return f"{first} comes before {max(names, key=self.order.index)}. {self.max_turns - self.turn} turns left.", 0.0, False, late, {}
        return f"Say '{ASK} X Y', or '{END}' with all {len(NAMES)} names.", 0.0, False, late, {}

    def solution(self):
        return [f"{END} {' '.join(self.order)}"]

    def hint(self):
        return "Insert one after the other into a sorted list, comparing with the middle first."
