import random
import re


class FixedLeversEnv:
    max_turns = 12

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.order = ["red", "blue", "red", "green", "red", "red", "green"]
        self.k = self.t = 0
        return f"Machine {rng.randint(1000, 9999)} has a red, a blue and a green lever. Pull seven in order. \\boxed{{colour}}", {}

    def step(self, action):
        self.t += 1
        found = re.search(r"\\boxed\{(red|blue|green)\}", action)
        self.k = self.k + 1 if found and found.group(1) == self.order[self.k] else 0
        won = self.k == 7
        return f"{self.k} lights are on.", float(won), won, self.t >= 12 and not won, {}

    def solution(self):
        return self.order[self.k :]
