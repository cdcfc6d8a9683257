import random
import re


class CaravanEnv:
    """Ask for prices, then make the one trade that earns most."""

    max_turns = 8
    goods = ("silk", "salt", "amber", "tea")

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        while True:
            self.coins = rng.randint(60, 140)
            self.buy = {g: rng.randint(5, 30) for g in self.goods}
            self.sell = {g: self.buy[g] + rng.randint(-3, 12) for g in self.goods}
            gain = {g: (self.coins // self.buy[g]) * (self.sell[g] - self.buy[g]) for g in self.goods}
            best = max(gain.values())
            if list(gain.values()).count(best) == 1 and best > 0:
                break
        self.best = max(gain, key=gain.get)
        self.amount = self.coins // self.buy[self.best]
        return (
            f"You lead a caravan with {self.coins} coins. Goods: {', '.join(self.goods)}. Actions: \\boxed{{ask GOOD}} tells "
            "what one piece costs here and brings abroad; \\boxed{trade GOOD N} buys N pieces here, sells them abroad and "
            "ends the game. You win with the trade of one good that earns most."
        ), {}

    def step(self, action):
        self.turn += 1
        out = self.turn >= self.max_turns
        found = re.search(r"\\boxed\{([^}]*)\}", action)
        words = found.group(1).lower().split() if found else []
        if len(words) == 2 and words[0] == "ask" and words[1] in self.goods:
            good = words[1]
            return f"{good}: {self.buy[good]} here, {self.sell[good]} abroad.", 0.0, False, out, {}
        if len(words) == 3 and words[0] == "trade" and words[1] in self.goods and words[2].isdecimal():
            won = words[1] == self.best and words[2] == str(self.amount)
            return ("The best trade!" if won else "You could have earned more."), float(won), True, False, {}
        return "Say ask GOOD or trade GOOD N.", 0.0, False, False, {}

    def solution(self):
        return [f"ask {g}" for g in self.goods] + [f"trade {self.best} {self.amount}"]
