import math
import random
import re

LEVEL = 1

GEARS = {1: "ABC", 2: "ABCD", 3: "ABCDE"}[LEVEL]


class GearTrainEnv:
    """Watch how fast gears turn against each other and say when all their marks are at the top again."""

    max_turns = len(GEARS) + 2

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.teeth = [rng.randint(7, 24) for _ in GEARS]
        self.turn = 0
        wheel = "the driving gear A" if LEVEL == 1 else "the gear before it in the alphabet"
        return (
            f"Gears {', '.join(GEARS)} of a clock mesh in a train, hidden behind a plate. Each has a painted mark, "
            f"and all marks are at the top now. With 'watch X' you see, for one gear X other than A, how far it "
            f"goes while {wheel} makes one full turn (direction does not matter here). The clockmaker wants to "
            "know after how many full turns of A, at the earliest and at least one, all marks are at the top "
            "together again.\n"
            f"Box one action a turn: \\boxed{{watch X}}, or \\boxed{{turns N}} as your single answer. "
            f"{self.max_turns} turns."
        ), {}

    def ratio(self, k):
        base = 0 if LEVEL == 1 else k - 1
        divisor = math.gcd(self.teeth[base], self.teeth[k])
        return self.teeth[base] // divisor, self.teeth[k] // divisor

    def answer(self):
        first = self.teeth[0]
        return math.lcm(*(t // math.gcd(first, t) for t in self.teeth[1:]))

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        said = re.fullmatch(r"\\boxed\{\s*(watch\s+([A-Z])|turns\s+(\d{1,9}))\s*\}", action.strip(), re.I)
        if said and said.group(3):
            right = int(said.group(3)) == self.answer()
            text = (
                "Click: every mark is at the top." if right else "The marks do not meet then, or met before."
            )
            return text, float(right), True, False, {}
        name = said.group(2).upper() if said else ""
        if not name or name not in GEARS[1:]:
            text = f"Invalid: watch one of {', '.join(GEARS[1:])}, or give 'turns N', in a box."
            return text, 0.0, False, late, {}
        k = GEARS.index(name)
        over, under = self.ratio(k)
        base = GEARS[0] if LEVEL == 1 else GEARS[k - 1]
        text = f"One turn of {base} moves {name} by {over}/{under} of a turn. Box 'watch X' or 'turns N'."
        return text, 0.0, False, late, {}

    def solution(self):
        return [f"watch {name}" for name in GEARS[1:]] + [f"turns {self.answer()}"]

    def hint(self):
        return "Express every gear's motion in turns of A as a reduced fraction; the marks meet at a common multiple."
