import random
import re

LEVEL = 1

ISLANDS = {1: "ABCDE", 2: "ABCDEFG", 3: "ABCDEFGHI"}[LEVEL]


class IslandBridgesEnv:
    """Connect all islands with bridges whose prices are asked for one island at a time, as cheaply as possible."""

    max_turns = {1: 11, 2: 15, 3: 19}[LEVEL]

    def reset(self, seed=None):
        rng = random.Random(seed)
        pairs = [a + b for i, a in enumerate(ISLANDS) for b in ISLANDS[i + 1 :]]
        self.price = dict(zip(pairs, rng.sample(range(11, 100), len(pairs)), strict=True))
        self.built = []
        self.turn = 0
        self.best = sum(self.price[p] for p in self.tree())
        return (
            f"The islands {', '.join(ISLANDS)} are to be joined by bridges so that one can walk from each to each. A "
            "bridge can be built between any two of them, each pair at a price of its own, and money is short: the "
            "contract is fulfilled only if the total is as low as it can be. Prices are not published, but the mayor "
            "of an island will tell all prices of bridges that start there.\n"
            "Commands: \\boxed{mayor X}; \\boxed{build XY}, which cannot be undone. When everything is joined, the "
            f"accounts are closed by themselves. {self.max_turns} commands."
        ), {}

    def tree(self):
        group = {name: name for name in ISLANDS}
        chosen = []
        for pair in sorted(self.price, key=self.price.get):
            a, b = group[pair[0]], group[pair[1]]
            if a != b:
                chosen.append(pair)
                group = {name: a if g == b else g for name, g in group.items()}
        return chosen

    def joined(self):
        reached = {ISLANDS[0]}
        for _ in ISLANDS:
            for a, b in self.built:
                if a in reached or b in reached:
                    reached |= {a, b}
        return len(reached) == len(ISLANDS)

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        said = re.fullmatch(r"\\boxed\{\s*(mayor|build)\s+([a-z][\s-]*[a-z]?)\s*\}", action.strip().lower())
        names = "".join(sorted(re.sub(r"[\s-]", "", said.group(2)).upper())) if said else ""
        left = f"{self.max_turns - self.turn} commands left ('mayor X', 'build XY')."
        if said and said.group(1) == "mayor" and len(names) == 1 and names in ISLANDS:
            told = ", ".join(f"to {p.replace(names, '')} {v}" for p, v in self.price.items() if names in p)
            return f"The mayor of {names}: bridges {told}. {left}", 0.0, False, late, {}
        if said and said.group(1) == "build" and names in self.price and names not in self.built:
            self.built.append(names)
            total = sum(self.price[p] for p in self.built)
            if self.joined():
                right = total == self.best
                text = f"All joined for {total}. " + (
                    "No cheaper way exists." if right else "It could be done for less."
                )
                return text, float(right), True, False, {}
            return f"Bridge {names} stands. Spent so far: {total}. {left}", 0.0, False, late, {}
        return (
            f"Invalid. Name one island for its mayor, or two for a new bridge. {left}",
            0.0,
            False,
            late,
            {},
        )

    def solution(self):
        return ["mayor A", "mayor B"] + [f"build {p}" for p in self.tree() if p not in self.built]

    def hint(self):
        return "All mayors but one tell every price; then take the cheapest bridge that joins two separate groups."
