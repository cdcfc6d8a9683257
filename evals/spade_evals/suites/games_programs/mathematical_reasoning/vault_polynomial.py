import random
import re

LEVEL = 1

DEGREE = {1: 2, 2: 3, 3: 4}[LEVEL]
LOW, HIGH = {1: (0, 9), 2: (0, 20), 3: (-15, 15)}[LEVEL]
DIAL = 12


class VaultPolynomialEnv:
    """Recover the whole-number coefficients of a polynomial from few of its values."""

    max_turns = 4

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.code = [rng.randint(LOW, HIGH) for _ in range(DEGREE + 1)]
        self.turn = 0
        terms = " + ".join(f"c{k}*x^{k}" for k in range(DEGREE, -1, -1))
        names = " ".join(f"c{k}" for k in range(DEGREE, -1, -1))
        return (
            f"The lock of an old vault computes {terms}. The combination consists of its coefficients, whole "
            f"numbers from {LOW} to {HIGH}. Set the dial to a number x from 1 to {DIAL} and the needle shows the "
            f"value. The dial survives {self.max_turns - 1} settings, and the door takes one combination only.\n"
            f"Either 'dial x' or 'open {names}' (highest power first, numbers separated by spaces), in \\boxed{{}}."
        ), {}

    def value(self, x):
        return sum(c * x**k for k, c in enumerate(reversed(self.code)))

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        said = re.fullmatch(r"\\boxed\{\s*(dial|open)((?:\s+-?\d{1,4})+)\s*\}", action.strip(), re.I)
        numbers = [int(n) for n in said.group(2).split()] if said else []
        if said and said.group(1).lower() == "open" and len(numbers) == DEGREE + 1:
            right = numbers == self.code
            text = "The door swings open." if right else "A bolt drops: wrong combination."
            return text, float(right), True, False, {}
        if said and said.group(1).lower() == "dial" and len(numbers) == 1 and 1 <= numbers[0] <= DIAL:
            x = numbers[0]
            text = f"Dial at {x}, needle at {self.value(x)}. Next, in \\boxed{{}}: 'dial x', or 'open ...' with {DEGREE + 1} numbers."
            return text, 0.0, False, late, {}
        text = f"Invalid setting, and it wears the dial. Give 'dial x' with x from 1 to {DIAL}, or 'open' with {DEGREE + 1} numbers."
        return text, 0.0, False, late, {}

    def solution(self):
        tries = [] if self.turn else ["dial 12", "dial 11"]
        return [*tries, "open " + " ".join(map(str, self.code))]

    def hint(self):
        return "What the value leaves over when divided by x speaks of the last coefficient alone; use two large x."
