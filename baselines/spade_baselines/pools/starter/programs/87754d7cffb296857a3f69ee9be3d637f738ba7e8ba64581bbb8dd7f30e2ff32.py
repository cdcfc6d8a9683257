import random
import re

SETTING = 'Dancers in a line change places by one fixed figure'
SIZE = 7


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class ShuffleEnv:
    """See one round of a fixed rearrangement and tell the order after several."""

    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        rng = random.Random(seed)
        while True:
            rule = rng.sample(range(SIZE), SIZE)
            names, other = (rng.sample("ABCDEFGHKLMNPRSTUVWXYZ", SIZE) for _ in range(2))
            self.rounds = rng.randint(2, 5)
            row = other
            for _ in range(self.rounds):
                row = [row[k] for k in rule]
            self.answer = "".join(row)
            if self.answer != "".join(other) and all(rule[i] != i for i in range(SIZE)) and row != [other[k] for k in rule]:
                break
        after = "".join(names[k] for k in rule)
        return (
            f"{SETTING}: {''.join(names)} becomes {after}. What becomes of {''.join(other)} after {self.rounds} such rounds? "
            "Answer with the letters in \\boxed{}."
        ), {}

    def step(self, action):
        right = boxed(action) == self.answer.lower()
        return "Yes, in this order." if right else "No, in another order.", float(right), True, False, {}

    def solution(self):
        return self.answer

    def hint(self):
        return "Write for each place from which place its content comes, and apply that once for each round."
