import random
import re

WHAT = 'Pumps run in a mine'
UNIT = 'hour'
SIZE = 7
SPAN = 160
ASK = 'double'


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class ShiftsCoverEnv:
    """Measure how long any, or at least two, of several intervals hold."""

    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        rng = random.Random(seed)
        while True:
            spans = []
            for _ in range(rng.randint(SIZE - 1, SIZE + 1)):
                start = rng.randint(0, SPAN - 40)
                spans.append((start, start + rng.randint(11, SPAN // 4)))
            count = [sum(a <= t < b for a, b in spans) for t in range(SPAN)]
            self.answer = {"covered": sum(c > 0 for c in count), "double": sum(c > 1 for c in count), "idle": sum(c == 0 for c in count)}[ASK]
            shown = {n for a, b in spans for n in (a, b, b - a)}
            if self.answer > 15 and self.answer not in shown:
                break
        listed = ", ".join(f"from {a} to {b}" for a, b in spans)
        asked = {"covered": "is at least one there", "double": "are at least two there at once", "idle": "is none there"}[ASK]
        return (
            f"{WHAT}. Between {UNIT} 0 and {UNIT} {SPAN} they are there {listed}. For how many {UNIT}s in all {asked}? "
            "Answer with one number in \\boxed{}."
        ), {}

    def step(self, action):
        right = boxed(action) == str(self.answer)
        return "That is the time." if right else "That is not the time.", float(right), True, False, {}

    def solution(self):
        return str(self.answer)

    def hint(self):
        return "Sort all beginnings and ends into one list and count between neighbours how many are there."
