import random
import re


class MastermindEnv:
    """Four digits, feedback on places and digits."""

    max_turns = 12

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.code = [rng.randint(1, 8) for _ in range(4)]
        self.turn = 0
        return (
            "A code of four digits from 1 to 8 is hidden. Guess with \\boxed{1234}; you learn how many digits stand "
            "in the right place and how many more are right but elsewhere. You have 12 guesses."
        ), {}

    def step(self, action):
        self.turn += 1
        out = self.turn >= self.max_turns
        found = re.search(r"\\boxed\{\s*([1-8]{4})\s*\}", action)
        if found is None:
            return "[INST] Give four digits from 1 to 8. [/INST]", 0.0, False, out, {}
        guess = [int(c) for c in found.group(1)]
        exact = sum(a == b for a, b in zip(guess, self.code))
        shared = sum(min(guess.count(d), self.code.count(d)) for d in range(1, 9))
        won = exact == 4
        return f"{exact} in place, {shared - exact} elsewhere.", float(won), won, out and not won, {}

    def solution(self):
        return "".join(map(str, self.code))
