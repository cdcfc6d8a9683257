"""Broken on purpose: the answer is a number, what arrives is text, so no answer is right."""

import random


class NeverEnv:
    max_turns = 2

    def reset(self, seed=None):
        self.turn = 0
        self.first, self.second = random.Random(seed).sample(range(1000, 9999), 2)
        return f"What is {self.first} and {self.second} together?", {}

    def step(self, action):
        self.turn += 1
        won = action.removeprefix("\\boxed{").removesuffix("}") == self.first + self.second
        return ("right" if won else "wrong"), float(won), won, self.turn >= 2, {}

    def solution(self):
        return str(self.first + self.second)
