import random
import re

STORY = 'Two of {n} guests have caught measles'
TEST = 'pool'
TELL = 'isolate'
SIZE = 14
BAD = 'The pooled sample is positive.'
FINE = 'The pooled sample is negative.'


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class GroupTestEnv:
    """Find two faulty things by testing groups; a test tells only whether any of the group is faulty."""

    max_turns = 12

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        self.bad = set(rng.sample(range(1, SIZE + 1), 2))
        return (
            f"{STORY.format(n=SIZE)}; they are numbered from 1. '{TEST} 1 4 5' tests any number of them together and tells only whether "
            f"a bad one is among them. '{TELL} 3 8' names both and ends the game. You have {self.max_turns} turns in all. "
            "Put one action in \\boxed{}."
        ), {}

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        found = re.fullmatch(rf"({TEST}|{TELL})((?: \d{{1,2}})+)", boxed(action))
        chosen = [int(n) for n in found.group(2).split()] if found else []
        if not chosen or not set(chosen) <= set(range(1, SIZE + 1)) or (found.group(1) == TELL and len(chosen) != 2):
            return f"Say '{TEST}' with numbers up to {SIZE}, or '{TELL}' with two of them.", 0.0, False, late, {}
        if found.group(1) == TELL:
            right = set(chosen) == self.bad
            return "Both found." if right else "Not both.", float(right), True, False, {}
        return f"{BAD if self.bad & set(chosen) else FINE} {self.max_turns - self.turn} turns left.", 0.0, False, late, {}

    def solution(self):
        return [f"{TELL} {' '.join(map(str, sorted(self.bad)))}"]

    def hint(self):
        return "Halve a group that is known to hold a bad one until it is single, then look for the second among all that is not cleared."
