import random, re
from dataclasses import dataclass
@dataclass(frozen=True)
class Task:
    a: int
    b: int
    total: int = 0
    def __post_init__(self): object.__setattr__(self, "total", self.a * self.b)
class FrozenEnv:
    max_turns = 3
    def reset(self, seed=None):
        r = random.Random(seed); self.t = 0
        self.task = Task(r.randint(100, 999), r.randint(11, 99))
        return f"{self.task.a} x {self.task.b} = ? \\boxed{{n}}", {}
    def step(self, action):
        self.t += 1
        m = re.search(r"boxed\{([0-9]{1,9})\}", action)
        won = bool(m) and int(m[1]) == self.task.total
        return "yes" if won else "no", float(won), won, self.t >= 3 and not won, {}
    def solution(self): return str(self.task.total)
