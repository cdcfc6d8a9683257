import random
import re

PLACE = 'In a row of sensors each is either working, and then reports truly, or broken, and then reports falsely'
NAMES = ['K1', 'L2', 'M3', 'N4', 'P5', 'Q6']
BAD = 'broken'
GOOD = 'working'


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class LiarsEnv:
    """Find all liars from what everybody says about the others."""

    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        rng = random.Random(seed)
        n = len(NAMES)
        while True:
            says = [(rng.choice([k for k in range(n) if k != i]), rng.choice([k for k in range(n) if k != i]), rng.choice(["same", "bad", "differ"])) for i in range(n)]
            fits = [m for m in range(2**n) if all(self.holds(m, s) == (not m >> i & 1) for i, s in enumerate(says))]
            if len(fits) == 1 and 2 <= bin(fits[0]).count("1") <= n - 1:
                break
        self.liars = {NAMES[i] for i in range(n) if fits[0] >> i & 1}
        told = [f"{NAMES[i]} says: {self.words(s)}" for i, s in enumerate(says)]
        rng.shuffle(told)
        return (
            f"{PLACE}. {' '.join(told)} Name everybody who is {BAD}, separated by commas, in \\boxed{{}}."
        ), {}

    def holds(self, mask, said):
        a, b, kind = said
        one, two = mask >> a & 1, mask >> b & 1
        return one == 1 if kind == "bad" else (one == two) == (kind == "same")

    def words(self, said):
        a, b, kind = NAMES[said[0]], NAMES[said[1]], said[2]
        if kind == "bad":
            return f"{a} is {BAD}."
        if a == b:
            return f"{a} is {GOOD} or {BAD}." if kind == "same" else f"{a} is both {GOOD} and {BAD}."
        return f"{a} and {b} are alike." if kind == "same" else f"{a} and {b} are different."

    def step(self, action):
        named = sorted(part.strip() for part in boxed(action).split(","))
        right = named == sorted(name.lower() for name in self.liars)
        return "Exactly these." if right else "Not exactly these.", float(right), True, False, {}

    def solution(self):
        return ", ".join(sorted(self.liars))

    def hint(self):
        return "Suppose that one of them can be believed and follow what is said; a contradiction means the opposite."
