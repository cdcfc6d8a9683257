import random
import re
import string


class CaesarWordEnv:
    """Undo a letter shift; the answer is a made-up word."""

    max_turns = 3

    def __init__(self, max_turns=3, **kwargs):
        self.max_turns = max_turns
        self.word = ""
        self.turn = 0

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        self.word = "".join(rng.choice("bdfgklmnprst") + rng.choice("aeiou") for _ in range(3))
        shift = rng.randint(3, 22)
        letters = string.ascii_lowercase
        coded = "".join(letters[(letters.index(c) + shift) % 26] for c in self.word)
        return (
            f"Every letter of a word was moved {shift} places on in the alphabet (z is followed by a) and gave "
            f"{coded}. Which word was it? Answer with \\boxed{{word}}."
        ), {}

    def step(self, action):
        self.turn += 1
        found = re.search(r"\\boxed\{([^}]*)\}", action)
        out = self.turn >= self.max_turns
        if not found:
            return "Please answer with \\boxed{word}.", 0.0, False, out, {}
        if found.group(1).strip().lower() == self.word:
            return "Right.", 1.0, True, False, {}
        self.word = self.word[::-1]
        return "That is not the word.", 0.0, False, out, {}

    def solution(self):
        return self.word

    def close(self):
        pass
