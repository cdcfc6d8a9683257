import random
import re

STORY = 'An alarm rings when all of three certain windows are open'
ITEMS = ['attic', 'bath', 'cellar', 'den', 'foyer', 'garage', 'kitchen', 'larder', 'study']
TRY = 'open'
TELL = 'accuse'
YES = 'The alarm rings.'
NO = 'All is quiet.'


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class HiddenSetsEnv:
    """Find the three causes that only work together."""

    max_turns = 13

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        self.cause = set(rng.sample(ITEMS, 3))
        seen = [sorted(rng.sample(ITEMS, len(ITEMS) - 2)) for _ in range(2)]
        told = " ".join(f"With {', '.join(s)}: {self.happens(s).lower()}" for s in seen)
        return (
            f"{STORY}: {', '.join(ITEMS)}. {told} '{TRY}' with any of them, such as '{TRY} {ITEMS[0]} {ITEMS[1]} {ITEMS[2]} {ITEMS[3]}', shows what happens. "
            f"'{TELL}' with three names ends the game. You have {self.max_turns} turns in all. Put one action in \\boxed{{}}."
        ), {}

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        word, *names = boxed(action).split() or [""]
        if word not in (TRY, TELL) or not names or not set(names) <= set(ITEMS) or (word == TELL and len(set(names)) != 3):
            return f"Say '{TRY}' with some of the names, or '{TELL}' with three.", 0.0, False, late, {}
        if word == TELL:
            right = set(names) == self.cause and len(names) == 3
            return "These three it is." if right else "Not these three.", float(right), True, False, {}
        return f"{self.happens(names)} {self.max_turns - self.turn} turns left.", 0.0, False, late, {}

    def happens(self, names):
        return YES if self.cause <= set(names) else NO

    def solution(self):
        return [f"{TELL} {' '.join(sorted(self.cause))}"]

    def hint(self):
        return "Begin with all of them and leave out one at a time: if nothing happens any more, that one is needed."
