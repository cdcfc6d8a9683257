"""Small environment programs for tests of play, design and training."""

GUESS = """import random, re


class GuessEnv:
    max_turns = 6

    def reset(self, seed=None):
        self.x = random.Random(seed).randint(1, 8)
        self.t = 0
        return "find the number from 1 to 8", {}

    def step(self, action):
        self.t += 1
        m = re.search(r"\\\\boxed{(.*)}", action)
        a = m.group(1) if m else ""
        n = int(a) if a.isdecimal() else 0
        done = n == self.x
        say = "right" if done else "higher" if n < self.x else "lower"
        return say, float(done), done, self.t >= self.max_turns, {}

    def solution(self):
        return str(self.x)
"""

COUNT = """class CountEnv:
    max_turns = 3

    def reset(self, seed=None):
        self.t = 0
        return f"count on from {(seed or 0) % 7}", {}

    def step(self, action):
        self.t += 1
        if "crash" in action:
            raise RuntimeError("boom")
        if "spin" in action:
            while True:
                pass
        if "stop" in action:
            return "stopped", -3.0, True, False, {}
        if "win" in action:
            return "won", 1.0, True, False, {}
        return f"turn {self.t}", 0.5, False, self.t >= self.max_turns, {}

    def solution(self):
        return ["on", "win"]
"""
