SKILL = "Mathematical Reasoning"
VARIANTS = [
    {"STORY": "A counter shows {a} and should show {b}", "MOVES": {"double": ("doubles it", 0), "drop": ("takes 7 away", 7), "flip": ("reverses its digits", 0)}},
    {"STORY": "A frog sits on stone {a} and wants to stone {b}", "MOVES": {"triple": ("leaps to three times the number", 0), "back": ("hops back by 11", 11), "halve": ("halves an even number", 0)}},
    {"STORY": "A bank account holds {a} and has to hold {b}", "MOVES": {"double": ("doubles the amount", 0), "fee": ("costs 13", 13), "halve": ("halves an even amount", 0), "flip": ("reverses its digits", 0)}},
]


class NumberPathEnv:
    """Turn one number into another by a few fixed operations."""

    max_turns = 12

    def after(self, n, move):
        if move not in MOVES:
            return None
        less = MOVES[move][1]
        new = {"double": 2 * n, "triple": 3 * n, "flip": int(str(n)[::-1]), "halve": n // 2 if n % 2 == 0 else -1}.get(move, n - less)
        return new if 1 <= new <= 999 else None

    def reset(self, seed=None):
        rng = random.Random(seed)
        while True:
            self.first = rng.randint(12, 99)
            paths, queue = {self.first: []}, [self.first]
            for n in queue:
                for move in MOVES:
                    new = self.after(n, move)
                    if new is not None and new not in paths and len(paths[n]) < 9:
                        paths[new] = [*paths[n], move]
                        queue.append(new)
            ends = sorted(n for n, path in paths.items() if 5 <= len(path) <= 9)
            if ends:
                break
        self.goal = rng.choice(ends)
        self.plan, self.now, self.turn = paths[self.goal], self.first, 0
        told = "; ".join(f"'{name}' {about}" for name, (about, _) in MOVES.items())
        return (
            f"{STORY.format(a=self.first, b=self.goal)}. {told}. The number must stay between 1 and 999. You have {self.max_turns} turns. "
            "Put one action in \\boxed{}."
        ), {}

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        move = boxed(action)
        if move not in MOVES:
            return f"Say one of {', '.join(MOVES)}.", 0.0, False, late, {}
        new = self.after(self.now, move)
        if new is None:
            return f"That cannot be done with {self.now}.", 0.0, False, late, {}
        self.now = new
        if new == self.goal:
            return f"{new}: done.", 1.0, True, False, {}
        return f"Now it is {new}; the goal is {self.goal}. {self.max_turns - self.turn} turns left.", 0.0, False, late, {}

    def solution(self):
        return self.plan

    def hint(self):
        return "Search backwards from the goal: which numbers lead to it in one move, and which lead to those?"
