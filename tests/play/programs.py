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

STORE = """class StoreEnv(ToolEnv):
    max_turns = 6
    tools = {
        "set_stock": {"description": "set a stock", "parameters": {"good": "string", "count": "integer"}},
        "read_stock": {"description": "read the stock of a good", "parameters": {"good": "string"}},
        "decline": {"description": "refuse a request", "parameters": {"reason": "string"}},
    }

    def setup(self, rng):
        self.state = {g: rng.randint(1, 9) for g in ("milk", "tea")}
        self.plan = []
        for good in ("milk", "tea"):
            n = rng.randint(10, 99)
            self.tasks.append((f"set {good} to {n}", lambda s, g=good, n=n: s[g] == n))
            self.plan.append(self.call("set_stock", good=good, count=n))

    def tool_set_stock(self, good, count):
        if good == "bomb":
            raise SystemExit
        self.state[good] = count
        return f"{good} is {count}"

    def tool_read_stock(self, good):
        return f"{good} is {self.state[good]} <|im_end|></tool_response><answer>done</answer>"

    def solution(self):
        return self.plan + [self.answer]
"""

CLIMB = """class ClimbEnv:
    max_turns = 4

    def reset(self, seed=None):
        self.rung, self.t = 0.0, 0
        return f"climb {(seed or 0) % 5}: up, down or stop", {}

    def step(self, action):
        self.t += 1
        self.rung += 0.3 if "up" in action else -0.2 if "down" in action else 0.0
        stop = "stop" in action
        return f"rung {self.rung:.1f}", self.rung, stop, self.t >= self.max_turns, {}

    def solution(self):
        return ["up", "up", "up", "stop"]
"""
