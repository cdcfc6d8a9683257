import random, re
class DoorsEnv:
    max_turns = 12
    def reset(self, seed=None):
        rng = random.Random(seed); self.t = 0
        self.code = [rng.choice("rgby") for _ in range(4)]
        self.open = 0
        vars = ", ".join(str((ord(c) * 13 + i * 7) % 256) for i, c in enumerate(self.code))
        return f"Four doors with coloured locks. Panel shows {vars}: each is (code of the letter r, g, b or y times 13 plus 7 times the door's number from 0) mod 256. Give one letter a turn in \\boxed{{}}; a wrong one jams the door for good.", {}
    def step(self, action):
        self.t += 1
        input = re.search(r"boxed\{([rgby])\}", action)
        exit = self.t >= 12
        if not input: return "one letter: r, g, b or y", 0.0, False, exit, {}
        if input.group(1) != self.code[self.open]: return "jammed", 0.0, True, False, {}
        self.open += 1
        open = self.open == 4
        return f"{self.open} open", float(open), open, exit and not open, {}
    def solution(self): return list(self.code)
