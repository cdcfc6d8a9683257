import random
import re

THINGS = 'bearings'
LABELS = 'klmnopqrstuv'
TURNS = 6
ODDITY = 'too heavy or too light'


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class ScalesEnv:
    """Find the odd one out, and how it differs, with a pair of scales."""

    max_turns = TURNS

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        self.odd, self.sign = rng.choice(LABELS), rng.choice((-1, 1))
        third = len(LABELS) // 3
        mixed = rng.sample(LABELS, len(LABELS))
        left, right = "".join(sorted(mixed[:third])), "".join(sorted(mixed[third : 2 * third]))
        return (
            f"Of {len(LABELS)} {THINGS}, labelled {', '.join(LABELS)}, exactly one is {ODDITY}. "
            f"Somebody has weighed {left} against {right}: {self.weighed(left, right).lower()} "
            f"'weigh {LABELS[0]}{LABELS[1]} {LABELS[2]}{LABELS[3]}' puts two on the left pan and two on the right; the pans must hold equally many. "
            f"'odd {LABELS[0]} heavy' or 'odd {LABELS[0]} light' ends the game. You have {self.max_turns} turns in all. "
            "Put one action in \\boxed{}."
        ), {}

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        text = boxed(action)
        said = re.fullmatch(r"odd ([a-z]) (heavy|light)", text)
        if said and said.group(1) in LABELS:
            right = said.group(1) == self.odd and (said.group(2) == "heavy") == (self.sign > 0)
            return "Right, you know your scales." if right else "No, it is not that.", float(right), True, False, {}
        pans = re.fullmatch(r"weigh ([a-z]+) ([a-z]+)", text)
        if not pans or len(pans.group(1)) != len(pans.group(2)) or len(set(pans.group(1) + pans.group(2))) != 2 * len(pans.group(1)) or not set(pans.group(1) + pans.group(2)) <= set(LABELS):
            return "Say 'weigh LEFT RIGHT' with equally many different labels, or 'odd X heavy|light'.", 0.0, False, late, {}
        return f"{self.weighed(*pans.groups())} {self.max_turns - self.turn} turns left; 'weigh' or 'odd'.", 0.0, False, late, {}

    def weighed(self, left, right):
        tilt = self.sign * ((self.odd in left) - (self.odd in right))
        return "The left pan sinks." if tilt > 0 else "The right pan sinks." if tilt < 0 else "The pans balance."

    def solution(self):
        return [f"odd {self.odd} {'heavy' if self.sign > 0 else 'light'}"]

    def hint(self):
        return "Weigh a third against a third first, then move some between pans and keep some off, so that each result splits what is left."
