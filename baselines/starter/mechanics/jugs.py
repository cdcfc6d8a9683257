SKILL = "Optimization"
VARIANTS = [
    {"VESSEL": "jug", "LIQUID": "water", "FILL": "fill", "EMPTY": "empty", "POUR": "pour", "UNIT": "litres", "TOP": 13},
    {"VESSEL": "tank", "LIQUID": "acid", "FILL": "load", "EMPTY": "drain", "POUR": "pump", "UNIT": "gallons", "TOP": 17},
    {"VESSEL": "hopper", "LIQUID": "grain", "FILL": "top", "EMPTY": "dump", "POUR": "tip", "UNIT": "sacks", "TOP": 19},
]


class JugsEnv:
    """Measure an amount with two vessels that have no marks."""

    max_turns = 16

    def reset(self, seed=None):
        rng = random.Random(seed)
        while True:
            self.size = [rng.randint(4, TOP), rng.randint(4, TOP)]
            self.target = rng.randint(1, max(self.size) - 1)
            self.plan = self.shortest() if self.target not in self.size else None
            if self.plan and 5 <= len(self.plan) <= self.max_turns - 3:
                break
        self.turn, self.held = 0, [0, 0]
        return (
            f"Two unmarked {VESSEL}s, a and b, hold {self.size[0]} and {self.size[1]} {UNIT} of {LIQUID}; both are empty. Actions: "
            f"'{FILL} a' makes it full, '{EMPTY} a' empties it, '{POUR} a b' moves from a to b until a is empty or b is full; likewise "
            f"for b. You win once a or b holds exactly {self.target} {UNIT}. You have {self.max_turns} turns. Put one action in \\boxed{{}}."
        ), {}

    def after(self, held, action):
        a, b = held
        if action == f"{FILL} a":
            return self.size[0], b
        if action == f"{FILL} b":
            return a, self.size[1]
        if action == f"{EMPTY} a":
            return 0, b
        if action == f"{EMPTY} b":
            return a, 0
        if action == f"{POUR} a b":
            moved = min(a, self.size[1] - b)
            return a - moved, b + moved
        if action == f"{POUR} b a":
            moved = min(b, self.size[0] - a)
            return a + moved, b - moved
        return None

    def shortest(self):
        words = [f"{FILL} a", f"{FILL} b", f"{EMPTY} a", f"{EMPTY} b", f"{POUR} a b", f"{POUR} b a"]
        paths, queue = {(0, 0): []}, [(0, 0)]
        for state in queue:
            if self.target in state:
                return paths[state]
            for word in words:
                new = self.after(state, word)
                if new not in paths:
                    paths[new] = [*paths[state], word]
                    queue.append(new)
        return None

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        new = self.after(tuple(self.held), boxed(action))
        if new is None:
            return f"Say {FILL}, {EMPTY} or {POUR} with a and b.", 0.0, False, late, {}
        self.held = list(new)
        told = f"a holds {new[0]}, b holds {new[1]}."
        if self.target in new:
            return told + " Measured.", 1.0, True, False, {}
        return f"{told} {self.max_turns - self.turn} turns left.", 0.0, False, late, {}

    def solution(self):
        return self.plan

    def hint(self):
        return "Keep filling one, moving into the other and emptying the other when it is full; try both directions."
