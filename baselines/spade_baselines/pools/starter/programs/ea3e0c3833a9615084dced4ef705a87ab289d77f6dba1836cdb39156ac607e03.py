import random
import re

PEOPLE = 'The Orsen'
SIGNS = 'otkvz'
COUNTED = 'sheep'


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class OddDigitsEnv:
    """Read a numeral system from examples and write a new number in it."""

    game_type = "single_turn"
    max_turns = 1

    def write(self, n):
        out = ""
        while n or not out:
            n, digit = divmod(n, len(self.signs))
            out = self.signs[digit] + out
        return out

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.signs = "".join(rng.sample(SIGNS, len(SIGNS)))
        base = len(self.signs)
        small = list(range(base + 2))
        shown = rng.sample(range(base * 3, base**3), 3)
        self.number = rng.choice([n for n in range(base**4, base**5) if n not in shown])
        examples = ", ".join(f"{n} is {self.write(n)}" for n in [*small, *sorted(shown)])
        return (
            f"{PEOPLE} write numbers of {COUNTED} with their own signs, the first place worth most. {examples}. "
            f"How do they write {self.number}? Answer with the signs in \\boxed{{}}."
        ), {}

    def step(self, action):
        right = boxed(action) == self.write(self.number)
        return "They would understand." if right else "Nobody there can read that.", float(right), True, False, {}

    def solution(self):
        return self.write(self.number)

    def hint(self):
        return "See after how many signs a second place appears: that is the base. Divide by it again and again."
