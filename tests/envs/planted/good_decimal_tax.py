import random, re
from decimal import Decimal, ROUND_HALF_UP, InvalidOperation
class MoneyEnv:
    max_turns = 3
    def reset(self, seed=None):
        r = random.Random(seed); self.t = 0
        self.net = Decimal(r.randint(10000, 999999)) / 100
        self.rate = Decimal(r.choice(["0.07", "0.19", "0.055"]))
        self.gross = (self.net * (1 + self.rate)).quantize(Decimal("0.01"), ROUND_HALF_UP)
        return f"Net {self.net} with tax {self.rate:%}: gross, to the cent? \\boxed{{amount}}", {}
    def step(self, action):
        self.t += 1
        m = re.search(r"boxed\{\s*\$?([0-9.,]{1,15})\s*\}", action)
        try: won = bool(m) and Decimal(m[1].replace(",", "")) == self.gross
        except InvalidOperation: won = False
        return ("yes" if won else "no"), float(won), won, self.t >= 3 and not won, {}
    def solution(self): return f"{self.gross}"
