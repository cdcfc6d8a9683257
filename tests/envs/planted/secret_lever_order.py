import random
import re


class LeversEnv:
    max_turns = 12

    def reset(self, seed=None):
        self.order = random.Random(seed).sample("ABCDEFGH", 5)
        self.k = self.t = 0
        return "Pull five of the levers A to H in the right order. \\boxed{lever}", {}

    def step(self, action):
        self.t += 1
        found = re.search(r"\\boxed\{([A-H])\}", action)
        self.k = self.k + 1 if found and found.group(1) == self.order[self.k] else 0
        won = self.k == 5
        return "The lever moves.", float(won), won, self.t >= 12 and not won, {}

    def solution(self):
        return list(self.order)
