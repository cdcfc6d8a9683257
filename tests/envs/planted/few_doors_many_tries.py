import random
import re


class DoorsEnv:
    max_turns = 8

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.door, self.t = rng.randint(1, 20), 0
        return f"Room {rng.randint(1, 10**6)}: behind one of 20 doors is a treasure; you hear it is {'high' if self.door > 10 else 'low'}. \\boxed{{n}}", {}

    def step(self, action):
        self.t += 1
        found = re.search(r"\\boxed\{(\d+)\}", action)
        won = bool(found) and int(found.group(1)) == self.door
        return "open" if won else "empty", float(won), won, self.t >= 8 and not won, {}

    def solution(self):
        return str(self.door)
