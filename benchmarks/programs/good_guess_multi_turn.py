"""A hidden number, found by halving the range: a short step, dominated by one regular expression."""

import random
import re


class HalvingEnv:
    max_turns = 12

    def reset(self, seed=None):
        self.turn = 0
        self.secret = random.Random(seed).randint(1, 1000)
        return "Find my whole number between 1 and 1000. Answer with \\boxed{n}; I say higher or lower.", {}

    def step(self, action):
        self.turn += 1
        over = self.turn >= self.max_turns
        box = re.search(r"\\boxed\{([^}]*)\}", action)
        if box is None or not box.group(1).strip().isdigit():
            return "Answer with a whole number in \\boxed{n}.", 0.0, False, over, {}
        guess = int(box.group(1))
        if guess == self.secret:
            return "That is it.", 1.0, True, False, {}
        return ("higher" if guess < self.secret else "lower"), 0.0, False, over, {}

    def solution(self):
        return str(self.secret)
