SKILL = "Mathematical Reasoning"
VARIANTS = [
    {"STORY": "A slot machine turns a number into another one by a fixed rule", "IN": "feed", "OUT": "claim", "RULE": "affine", "TURNS": 6},
    {"STORY": "An oracle answers every number with another, always by the same rule", "IN": "ask", "OUT": "swear", "RULE": "square", "TURNS": 6},
    {"STORY": "A kiln changes the weight of what is put in by a fixed rule", "IN": "fire", "OUT": "bet", "RULE": "modulus", "TURNS": 9},
]


class MachineRuleEnv:
    """Try a hidden rule on small numbers, then foretell what it makes of a large one."""

    max_turns = TURNS

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        self.a, self.b, self.m = rng.randint(3, 19), rng.randint(11, 97), rng.randint(23, 61)
        self.big = rng.randint(301, 899)
        kind = {
            "affine": "the number is multiplied by something and something is added",
            "square": "the number is squared, then something times the number and something else are added",
            "modulus": "the number is multiplied by something, and of the product only what is left after taking a certain whole number away as often as possible counts",
        }[RULE]
        top = 20 if RULE != "modulus" else 60
        return (
            f"{STORY}: {kind}; these are whole numbers. '{IN} 7' shows what becomes of 7; it works for 0 to {top} only. Say what "
            f"becomes of {self.big} with '{OUT} N', once. You have {self.max_turns} turns. Put one action in \\boxed{{}}."
        ), {}

    def rule(self, n):
        return {"affine": self.a * n + self.b, "square": n * n + self.a * n + self.b, "modulus": self.a * n % self.m}[RULE]

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        tried = re.fullmatch(IN + r" (\d{1,2})", boxed(action))
        if tried and int(tried.group(1)) <= (20 if RULE != "modulus" else 60):
            n = int(tried.group(1))
            return f"{n} becomes {self.rule(n)}. Now '{IN} N' or '{OUT} N'.", 0.0, False, late, {}
        said = re.fullmatch(OUT + r" (\d{1,7})", boxed(action))
        if said:
            right = int(said.group(1)) == self.rule(self.big)
            return "Exactly so." if right else "It becomes something else.", float(right), True, False, {}
        return f"Say '{IN} N' or '{OUT} N'.", 0.0, False, late, {}

    def solution(self):
        return [f"{OUT} {self.rule(self.big)}"]

    def hint(self):
        return "Try small neighbours such as 0, 1, 2 and look at differences; where results fall back, the difference shows what is taken away."
