import itertools
import math
import random
import re

LEVEL = 1

DISHES = {1: 4, 2: 5, 3: 6}[LEVEL]
NAMES = ("soup", "pie", "stew", "roast", "curry", "tart", "pasta", "salad")


class KitchenOrdersEnv:
    """Cook dishes of unknown length one after the other so that the fines for late ones are as low as possible."""

    max_turns = 2 * DISHES

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        self.timed = []
        while True:
            self.dishes = rng.sample(NAMES, DISHES)
            self.minutes = {d: rng.randint(6, 29) for d in self.dishes}
            total = sum(self.minutes.values())
            self.due = {d: rng.randint(20, total - 8) for d in self.dishes}
            self.fine = {d: rng.randint(2, 19) for d in self.dishes}
            self.best, ways = self.cheapest()
            if self.best > 0 and ways <= max(1, math.factorial(DISHES) // 40):
                break
        lines = "\n".join(f"{d}: to be served within {self.due[d]} minutes" for d in self.dishes)
        kind = "its fine, once" if LEVEL < 3 else "its fine for every minute of delay"
        return (
            f"One stove, {DISHES} dishes, and they are cooked one after the other without a break:\n{lines}\n"
            f"A dish that is finished later than that costs {kind}. How long a dish takes and how high its fine is, "
            "the cook tells you dish by dish. Choose the order with the lowest sum of fines.\n"
            "Ask with 'cook DISH', decide with 'order' and all dishes from first to last; deciding ends the game. "
            f"Box each action: \\boxed{{cook {self.dishes[0]}}}. {self.max_turns} turns."
        ), {}

    def cheapest(self):
        """The lowest sum of fines and the number of orders that reach it, over sets of dishes cooked first."""
        found = {frozenset(): (0, 1)}
        for size in range(1, DISHES + 1):
            for chosen in itertools.combinations(self.dishes, size):
                clock, rows = sum(self.minutes[d] for d in chosen), []
                for last in chosen:
                    before, ways = found[frozenset(chosen) - {last}]
                    rows.append((before + self.fined(last, clock), ways))
                low = min(rows)[0]
                found[frozenset(chosen)] = (low, sum(w for cost, w in rows if cost == low))
        return found[frozenset(self.dishes)]

    def fined(self, dish, clock):
        over = max(0, clock - self.due[dish])
        return self.fine[dish] * (over if LEVEL == 3 else over > 0)

    def cost(self, order):
        clock = fines = 0
        for dish in order:
            clock += self.minutes[dish]
            fines += self.fined(dish, clock)
        return fines

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        said = re.fullmatch(r"\\boxed\{\s*(cook|order)((?:[\s,]+[a-z]+)+)\s*\}", action.strip().lower())
        words = re.findall(r"[a-z]+", said.group(2)) if said else []
        if said and said.group(1) == "cook" and len(words) == 1 and words[0] in self.dishes:
            dish = words[0]
            text = f"{dish} takes {self.minutes[dish]} minutes; its fine is {self.fine[dish]}. "
            return text + f"{self.max_turns - self.turn} turns left.", 0.0, False, late, {}
        if said and said.group(1) == "order" and sorted(words) == sorted(self.dishes):
            fines = self.cost(words)
            right = fines == self.best
            text = f"The fines come to {fines}. " + (
                "It cannot be done for less." if right else "Another order costs less."
            )
            return text, float(right), True, False, {}
        text = (
            f"Invalid. 'cook' with one of {', '.join(self.dishes)}, or 'order' with all {DISHES}, in a box."
        )
        return text, 0.0, False, late, {}

    def solution(self):
        best = min(itertools.permutations(self.dishes), key=self.cost)
        asked = [] if self.turn else [f"cook {d}" for d in self.dishes]
        return [*asked, "order " + " ".join(best)]

    def hint(self):
        return "Ask for all dishes first; then decide which ones to be late with before you decide the order."
