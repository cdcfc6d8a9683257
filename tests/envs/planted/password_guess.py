import random
import re


class PasswordEnv:
    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        self.word = "".join(random.Random(seed).choice("abcdefghij") for _ in range(6))
        return "Guess the password of six letters from a to j. \\boxed{word}", {}

    def step(self, action):
        found = re.search(r"\\boxed\{([a-j]{6})\}", action)
        won = bool(found) and found.group(1) == self.word
        return "ok" if won else "no", float(won), True, False, {}

    def solution(self):
        return self.word
