import random
import re


class TwentyGatesEnv:
    """Twenty gates, each with a digit given by a rule; needs twenty right turns."""

    max_turns = 24

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.a, self.b, self.c = rng.randint(1, 9), rng.randint(0, 9), rng.choice([1, 3, 7, 9])
        self.turn = 0
        self.gate = 1
        return (
            "Digits: " + " ".join(self.digit(k) for k in range(1, 21)) + f". Twenty gates stand in a row. Gate k opens to the last digit of {self.c} k k + {self.a} k + {self.b}. "
            "Start at gate 1 and say one digit a turn in \\boxed{}."
        ), {}

    def digit(self, k):
        return str((self.c * k * k + self.a * k + self.b) % 10)

    def step(self, action):
        self.turn += 1
        out = self.turn >= self.max_turns
        if self.gate > 20:
            return "All gates are open.", 0.0, True, False, {}
        if re.search(r"\\boxed\{\s*" + self.digit(self.gate) + r"\s*\}", action):
            self.gate += 1
            if self.gate > 20:
                return "The last gate opens.", 1.0, True, False, {}
            return f"It opens. You stand before gate {self.gate}.", (self.gate - 1) / 20, False, out, {}
        return f"Gate {self.gate} stays shut.", (self.gate - 1) / 20, False, out, {}

    def solution(self):
        return [self.digit(k) for k in range(self.gate, 21)]
