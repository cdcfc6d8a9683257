import random
import re

STORY = 'Three spices decide how hot a soup is'
KNOBS = ['pepper', 'chili', 'mustard']
SET = 'add'
READ = 'heat'


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class DosageEnv:
    """Learn what each of three knobs does to a reading and bring it to an exact value."""

    max_turns = 9

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        self.base = rng.randint(11, 60)
        self.effect = {k: rng.choice((-1, 1)) * rng.randint(3, 13) for k in KNOBS}
        while len(set(map(abs, self.effect.values()))) < 3:
            self.effect = {k: rng.choice((-1, 1)) * rng.randint(3, 13) for k in KNOBS}
        self.answer = [rng.randint(1, 9) for _ in KNOBS]
        self.goal = self.value(self.answer)
        return (
            f"{STORY}: {', '.join(KNOBS)}. Each adds or takes away a fixed amount of {READ} per unit; without any the {READ} is something too. "
            f"'{SET} 1 0 2' tries one unit of the first, none of the second and two of the third (0 to 9 of each, 2 at most in all while "
            f"you test) and shows the {READ}. 'final' with three numbers from 0 to 9 must give exactly {self.goal}, once. "
            f"You have {self.max_turns} turns. Put one action in \\boxed{{}}."
        ), {}

    def value(self, units):
        return self.base + sum(n * self.effect[k] for n, k in zip(units, KNOBS))

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        found = re.fullmatch(rf"({SET}|final) (\d) (\d) (\d)", boxed(action))
        units = [int(n) for n in found.groups()[1:]] if found else []
        if not found or (found.group(1) == SET and sum(units) > 2):
            return f"Say '{SET}' with three numbers of sum 2 at most, or 'final' with three numbers up to 9.", 0.0, False, late, {}
        if found.group(1) == "final":
            right = self.value(units) == self.goal
            return f"The {READ} is {self.value(units)}.", float(right), True, False, {}
        return f"The {READ} is {self.value(units)}. {self.max_turns - self.turn} turns left.", 0.0, False, late, {}

    def solution(self):
        return [f"final {' '.join(map(str, self.answer))}"]

    def hint(self):
        return "Try nothing at all, then one unit of each alone; then solve for whole numbers that reach the goal."
