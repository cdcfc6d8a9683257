import random, re
class AliasEnv:
    max_turns = 3
    def _begin(self, seed=None):
        r = random.Random(seed); self.t = 0
        self.p = r.sample(range(10, 99), 5)
        return f"Product of the largest and the smallest of {self.p}? \\boxed{{n}}", {}
    def _act(self, action):
        self.t += 1
        m = re.search(r"boxed\{([0-9]{1,6})\}", action)
        won = bool(m) and int(m[1]) == max(self.p) * min(self.p)
        return str(won), float(won), won, self.t >= 3 and not won, {}
    reset, step = _begin, _act
    def solution(self): return str(max(self.p) * min(self.p))
