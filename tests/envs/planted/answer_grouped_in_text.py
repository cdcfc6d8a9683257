import random, re

class TaskEnv:
    max_turns = 3

    def reset(self, seed=None):
        self.t = 0
        r = random.Random(seed)
        self.x = str(r.randint(10**5, 10**6)); k = r.randint(1, 9)
        return f"Case {k}: pay {int(self.x):,} now", {}

    def solution(self):
        return self.x

    def step(self, action):
        self.t += 1
        m = re.search(r"\\boxed{(.*)}", action)
        a = m.group(1) if m else ""
        won = a == self.x
        return ('right' if won else 'wrong'), float(won), won, self.t >= self.max_turns, {}
