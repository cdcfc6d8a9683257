import random
import re

WHO = 'A baker'
DUTY = 'grinds rye'
SECOND = 'sharpens the knives'
UNIT = 'morning'
TOP = 23


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class RotaEnv:
    """Two duties of different rhythm and start: when do they fall together for the n-th time?"""

    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        rng = random.Random(seed)
        while True:
            a, b = rng.randint(5, TOP), rng.randint(5, TOP)
            first, second, times = rng.randint(1, a), rng.randint(1, b), rng.randint(2, 4)
            both = [d for d in range(1, 5 * a * b) if d >= max(first, second) and (d - first) % a == (d - second) % b == 0]
            if a != b and len(both) >= times:
                break
        self.answer = both[times - 1]
        return (
            f"{WHO} {DUTY} on {UNIT} {first} and every {a} {UNIT}s after it, and {SECOND} on {UNIT} {second} and every "
            f"{b} {UNIT}s after it. On which {UNIT} do both fall together for time number {times}? "
            "Answer with one number in \\boxed{}."
        ), {}

    def step(self, action):
        right = boxed(action) == str(self.answer)
        return "That is right." if right else "That is wrong.", float(right), True, False, {}

    def solution(self):
        return str(self.answer)

    def hint(self):
        return "List the occasions of the rarer duty and test each against the other; later ones are a common multiple apart."
