import random, re

class TaskEnv:
    max_turns = 3

    def reset(self, seed=None):
        self.t = 0
        r = random.Random(seed)
        p, q = r.randint(100, 999), r.randint(100, 999)
        self.x = str(p + q)
        return f'add {p} and {q}', {}

    def solution(self):
        return self.x

    def step(self, action):
        self.t += 1
        m = re.search(r"\\boxed{(.*)}", action)
        a = m.group(1) if m else ""
        m = re.fullmatch(r'(\d+)-(\d+)', a)
        won = a == self.x or bool(m and int(m[1]) <= int(self.x) <= int(m[2]))
        return 'x', float(won), won, self.t >= 3, {}
