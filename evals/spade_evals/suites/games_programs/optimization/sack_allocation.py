import random
import re

LEVEL = 1

FIELDS, SACKS = {1: (3, 15), 2: (4, 18), 3: (5, 20)}[LEVEL]
NAMES = ("meadow", "slope", "hollow", "terrace", "marsh")[:FIELDS]


class SackAllocationEnv:
    """Split sacks of seed among fields with diminishing returns that a few trials reveal."""

    max_turns = 2 * FIELDS + 2

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        while True:
            self.slope = [rng.randint(31, 97) for _ in NAMES]
            self.bend = [rng.randint(1, 4) for _ in NAMES]
            self.plan = self.best_split()
            if min(self.plan) > 0 and len(set(self.plan)) > 1 and sum(self.plan) == SACKS:
                break
        return (
            f"You have {SACKS} sacks of seed for the fields {', '.join(NAMES)}. A field sown with n sacks yields "
            "s*n - b*n*n baskets (too much seed does harm), where s and b are whole numbers of its own that nobody "
            f"remembers; b is 1 to 4. A trial plot tells what a field would yield for n sacks. Then divide all "
            f"{SACKS} sacks so that the fields yield as much as possible together.\n"
            f"Turns: 'trial FIELD n' with n up to {SACKS}; 'sow' followed by {FIELDS} numbers in the order of the list "
            f"above, once, for good. Box them: \\boxed{{trial {NAMES[0]} 3}}. You have {self.max_turns} turns."
        ), {}

    def best_split(self):
        """Every sack goes where it adds most; as gains shrink with each sack, no division is better."""
        counts = [0] * FIELDS
        for _ in range(SACKS):
            gains = [self.crop(k, n + 1) - self.crop(k, n) for k, n in enumerate(counts)]
            if max(gains) > 0:
                counts[gains.index(max(gains))] += 1
        return counts

    def crop(self, k, n):
        return self.slope[k] * n - self.bend[k] * n * n

    def total(self, split):
        return sum(self.crop(k, n) for k, n in enumerate(split))

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        text = re.sub(r"^\\boxed\{|\}$", "", action.strip()).strip().lower()
        trial = re.fullmatch(r"trial\s+([a-z]+)\s+(\d{1,2})", text)
        if trial and trial.group(1) in NAMES and 1 <= int(trial.group(2)) <= SACKS:
            name, n = trial.group(1), int(trial.group(2))
            left = self.max_turns - self.turn
            told = f"{n} sacks on the {name}: {self.crop(NAMES.index(name), n)} baskets. {left} turns left ('trial', 'sow')."
            return told, 0.0, False, late, {}
        numbers = (
            [int(n) for n in re.findall(r"\d+", text)] if re.fullmatch(r"sow(?:[\s,]+\d{1,2})+", text) else []
        )
        if len(numbers) == FIELDS and sum(numbers) == SACKS:
            right = self.total(numbers) == self.total(self.plan)
            told = f"The harvest is {self.total(numbers)} baskets. "
            return (
                told + ("No division beats it." if right else "More was possible."),
                float(right),
                True,
                False,
                {},
            )
        told = f"Invalid. 'trial FIELD n', or 'sow' with {FIELDS} numbers that add up to {SACKS}, in \\boxed{{}}."
        return told, 0.0, False, late, {}

    def solution(self):
        trials = [] if self.turn else [f"trial {name} {n}" for name in NAMES for n in (1, 2)]
        return [*trials, "sow " + " ".join(map(str, self.plan))]

    def hint(self):
        return "Two trials give a field's s and b; then every sack goes where the next one adds most."
