import datetime, random, re

Day = datetime.date
class TaskEnv:
    max_turns = 3

    def reset(self, seed=None):
        self.t = 0
        r = random.Random(seed)
        p = Day.today().toordinal() + r.randint(1, 99)
        self.x = str(p * 2)
        return f'double {p}', {}

    def solution(self):
        return self.x

    def step(self, action):
        self.t += 1
        m = re.search(r"\\boxed{(.*)}", action)
        a = m.group(1) if m else ""
        won = a == self.x
        return ('right' if won else 'wrong'), float(won), won, self.t >= self.max_turns, {}
