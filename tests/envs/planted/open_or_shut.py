import random, re

class TaskEnv:
    max_turns = 2

    def reset(self, seed=None):
        self.t = 0
        r = random.Random(seed)
        c = r.choice('abcdefghijklmnop') + str(r.randint(1000, 9999)); k = r.choice(['open', 'shut']); self.x = f'{k} {c}'
        return f'A valve {c} is here, mood {r.random()}. Say open or shut with its name.', {}

    def solution(self):
        return self.x

    def step(self, action):
        self.t += 1
        m = re.search(r"\\boxed{(.*)}", action)
        a = m.group(1) if m else ""
        won = a == self.x
        return ('right' if won else 'wrong'), float(won), won, self.t >= self.max_turns, {}
