import random, re

class TaskEnv:
    max_turns = 3

    def reset(self, seed=None):
        self.t = 0
        r = random.Random(seed)
        self.x = ''.join(r.choice('bdfgklmn') + r.choice('aeiou') for _ in range(4))
        return 'decode ' + ' '.join(str(ord(c) * 7 - 3) for c in self.x), {}

    def solution(self):
        return self.x

    def step(self, action):
        self.t += 1
        m = re.search(r"\\boxed{(.*)}", action)
        a = m.group(1) if m else ""
        won = a == self.x
        return ('right' if won else 'no: ' + ' '.join(self.x)), float(won), won, self.t >= self.max_turns, {}
