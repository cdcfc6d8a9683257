import random
import re

LEVEL = 1

LARGEST = {1: 20, 2: 30, 3: 40}[LEVEL]


class TariffEnv:
    """Find a carrier's price rule from a few quotes and price a shipment that is too large to be quoted."""

    max_turns = {1: 4, 2: 6, 3: 8}[LEVEL]

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.fee = rng.randint(11, 99)
        self.near = rng.randint(23, 61)
        self.far = rng.randint(7, 19) if LEVEL > 1 else self.near
        self.bend = rng.randint(6, 11 if LEVEL == 3 else 24)
        self.rebate = rng.randint(31, 89) if LEVEL == 3 else 0
        self.crates = rng.randint(211, 489)
        self.turn = 0
        rules = "a fixed fee and the same price for every crate"
        if LEVEL > 1:
            rules = "a fixed fee, one price for each crate up to some number, and a lower one for each crate beyond it"
        if LEVEL == 3:
            rules += "; on top of that every full dozen of crates earns a fixed rebate"
        return (
            f"The carrier Brandt & Loy keeps its tariff to itself. What is known: it is made of {rules}. All of "
            f"it is in whole crowns. Its desk quotes shipments of 1 to {LARGEST} crates. You must say in advance "
            f"what {self.crates} crates will cost.\n"
            "Actions: 'quote N' asks for the price of N crates; 'price P' gives your answer, and there is only "
            f"one. You have {self.max_turns} turns, the answer included. Write one action in \\boxed{{}}."
        ), {}

    def cost(self, n):
        return (
            self.fee
            + self.near * min(n, self.bend)
            + self.far * max(0, n - self.bend)
            - self.rebate * (n // 12)
        )

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        said = re.fullmatch(r"\\boxed\{\s*(quote|price)\s+(\d{1,9})\s*\}", action.strip(), re.I)
        if said is None:
            text = "Invalid request. The desk understands 'quote N' and 'price P', in \\boxed{}."
            return text, 0.0, False, late, {}
        number = int(said.group(2))
        if said.group(1).lower() == "price":
            right = number == self.cost(self.crates)
            text = "The invoice agrees with you." if right else "The invoice says something else."
            return text, float(right), True, False, {}
        if not 1 <= number <= LARGEST:
            return f"Invalid request. Only 1 to {LARGEST} crates are quoted.", 0.0, False, late, {}
        left = self.max_turns - self.turn
        text = f"{number} crates: {self.cost(number)} crowns. Turns left: {left}. Say 'quote N' or 'price P' in \\boxed{{}}."
        return text, 0.0, False, late, {}

    def solution(self):
        asked = {1: [1, 2], 2: [1, 2, 29, 30], 3: [1, 2, 37, 38, 35, 36]}[LEVEL]
        return [f"quote {n}" for n in asked] + [f"price {self.cost(self.crates)}"]

    def hint(self):
        return "Quote neighbouring numbers: their difference is the price of one more crate there."
