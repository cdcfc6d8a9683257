import itertools
import random
import re

LEVEL = 1

STOPS = {1: 4, 2: 5, 3: 6}[LEVEL]
TANK = {1: 40, 2: 50, 3: 60}[LEVEL]


class LongHaulEnv:
    """Buy fuel along a road at changing prices so that the whole trip costs as little as possible."""

    max_turns = STOPS + 3

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = self.spent = self.stop = 0
        while True:
            self.price = [rng.randint(11, 39) for _ in range(STOPS)]
            self.leg = [rng.randint(9, TANK * 2 // 3) for _ in range(STOPS)]
            self.fuel = rng.randint(2, 8)
            self.plan = self.cheapest()
            if (
                len(set(self.price)) == STOPS
                and sum(n == 0 for n in self.plan) <= STOPS // 2
                and self.plan[0]
            ):
                break
        self.start = self.fuel
        self.best = self.bill(self.plan)
        names = [f"stop {k + 1}" for k in range(STOPS)] + ["the harbour"]
        road = "\n".join(
            f"{a} to {b}: {d} litres" for (a, b), d in zip(itertools.pairwise(names), self.leg, strict=True)
        )
        if LEVEL == 1:
            known = "The prices per litre at the stops are " + ", ".join(map(str, self.price)) + "."
        else:
            known = "Prices differ from stop to stop; 'radio K' asks stop K for its price per litre and costs nothing but the action."
        extra = "" if LEVEL == 1 else "'radio 1 3 4' asks several stops at once. "
        return (
            f"Your truck stands at stop 1 with {self.fuel} litres in a tank for {TANK}. The road and what it takes:\n"
            f"{road}\n{known} Reach the harbour with the least money spent on fuel; only the cheapest trip counts. "
            f"At each stop say 'buy N' with a whole number of litres, 0 allowed, and the truck drives on. {extra}"
            f"Running dry or overfilling ends the trip. Actions in \\boxed{{}}, {self.max_turns} of them."
        ), {}

    def cheapest(self):
        """Litres to buy at each stop: from the cheapest source that still reaches, forwards."""
        plan, fuel = [], self.fuel
        for k in range(STOPS):
            reach, goal = 0, None
            for j in range(k, STOPS):
                reach += self.leg[j]
                if reach > TANK:
                    break
                if j + 1 == STOPS or self.price[j + 1] < self.price[k]:
                    goal = reach
                    break
            amount = max(0, (TANK if goal is None else goal) - fuel)
            plan.append(amount)
            fuel += amount - self.leg[k]
        return plan

    def bill(self, plan):
        return sum(p * n for p, n in zip(self.price, plan, strict=True))

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        text = re.sub(r"^\\boxed\{|\}$", "", action.strip()).strip().lower()
        asked = (
            [int(n) for n in re.findall(r"\d+", text)] if re.fullmatch(r"radio(?:[\s,]+\d)+", text) else []
        )
        if asked and all(1 <= k <= STOPS for k in asked):
            told = ", ".join(f"stop {k} sells at {self.price[k - 1]}" for k in asked)
            return (
                f"Radio: {told}. You are at stop {self.stop + 1}: 'buy N' or 'radio K'.",
                0.0,
                False,
                late,
                {},
            )
        said = re.fullmatch(r"buy\s+(\d{1,3})", text)
        if said is None or self.stop >= STOPS:
            return "Invalid. At a stop one can 'buy N' or 'radio K', in \\boxed{}.", 0.0, False, late, {}
        self.fuel += int(said.group(1))
        self.spent += int(said.group(1)) * self.price[self.stop]
        if self.fuel > TANK:
            return "Fuel runs over the road; the police end the trip.", 0.0, True, False, {}
        self.fuel -= self.leg[self.stop]
        if self.fuel < 0:
            return "The engine coughs and stops between two stops.", 0.0, True, False, {}
        self.stop += 1
        if self.stop == STOPS:
            right = self.spent == self.best
            end = "Nobody gets there for less." if right else "The same trip can be had for less."
            return f"The harbour, for {self.spent} in all. {end}", float(right), True, False, {}
        told = f"Stop {self.stop + 1}, {self.fuel} of {TANK} litres in the tank, {self.spent} spent. 'buy N'"
        return told + (" or 'radio K'." if LEVEL > 1 else "."), 0.0, False, late, {}

    def solution(self):
        ask = [] if LEVEL == 1 or self.turn else ["radio " + " ".join(str(k + 1) for k in range(STOPS))]
        return ask + [f"buy {n}" for n in self.plan[self.stop :]]

    def hint(self):
        return "Buy just enough to reach the next cheaper stop; if there is none within one tank, fill it up."
