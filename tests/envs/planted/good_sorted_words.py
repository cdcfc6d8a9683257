import random


class SortedWordsEnv:
    """Put a list of words in order, one a turn; a wrong one ends it."""

    max_turns = 8

    def reset(self, seed=None):
        rng = random.Random(seed)
        pool = ["oak", "fir", "elm", "ash", "yew", "pine", "beech", "maple", "cedar", "larch", "lime", "birch"]
        self.rows = rng.sample(pool, 5)
        self.t = 0
        self.left = sorted(self.rows, key=lambda w: (len(w), w))
        return (
            "Trees: " + ", ".join(self.rows) + ". Name all of them, one a turn in \\boxed{}, from the shortest name to the "
            "longest, equal ones by the alphabet. A wrong one ends the game."
        ), {}

    def step(self, action):
        self.t += 1
        if action.strip() != "\\boxed{" + self.left[0] + "}":
            return "Wrong.", 0.0, True, False, {}
        self.left = self.left[1:]
        return f"Right, {len(self.left)} to go.", 1.0 if not self.left else self.t / 6, not self.left, False, {}

    def solution(self):
        return list(self.left)
