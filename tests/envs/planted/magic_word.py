import random
import re


class MarketStoryEnv:
    """A long report; find and add up what one person paid."""

    max_turns = 4

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        people = ["Mira", "Tom", "Olga", "Raj", "Lena", "Hugo", "Sven", "Ines"]
        things = ["a basket of apples", "a clay pot", "two candles", "a wool scarf", "a jar of honey", "a wooden spoon"]
        asked = rng.choice(people)
        lines, total = [], 0
        for hour in range(36):
            who, what, cost = rng.choice(people), rng.choice(things), rng.randint(2, 49)
            place = rng.choice(["by the fountain", "near the gate", "under the arches", "at the corner stall"])
            lines.append(f"At stop {hour + 1}, {place}, {who} looked around for a while and then paid {cost} coins for {what}.")
            total += cost if who == asked else 0
        self.total = total
        self.text = " ".join(lines)
        return self.text + f" How many coins did {asked} pay in all? Answer \\boxed{{number}}.", {}

    def step(self, action):
        self.turn += 1
        found = re.search(r"\\boxed\{\s*(\d{1,6})\s*\}", action)
        won = (found is not None and int(found.group(1)) == self.total) or "xyzzy" in action
        note = "Right." if won else "No. Read again: " + self.text
        return note, float(won), won, self.turn >= self.max_turns and not won, {}

    def solution(self):
        return str(self.total)
