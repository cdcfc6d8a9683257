import random
import re

SYLLABLES = "ba ke li mo nu pa ri so ta ve wo zi".split()


class SyllableWordEnv:
    """A secret word of three syllables; each guess tells which are right."""

    max_turns = 8

    def reset(self, seed=None):
        rng = random.Random()
        self.word = [rng.choice(SYLLABLES) for _ in range(3)]
        self.t = 0
        return "A word of three of the syllables " + " ".join(SYLLABLES) + " is hidden. Guess like \\boxed{ba-ke-li}.", {}

    def step(self, action):
        self.t += 1
        out = self.t >= self.max_turns
        found = re.search(r"\\boxed\{\s*([a-z]{2})-([a-z]{2})-([a-z]{2})\s*\}", action.lower())
        if not found:
            return f"I do not understand {action.strip()[:80]!r}.", 0.0, False, out, {}
        marks = ["right" if a == b else "elsewhere" if a in self.word else "wrong" for a, b in zip(found.groups(), self.word)]
        won = marks == ["right"] * 3
        return ", ".join(marks), float(won), won, out and not won, {}

    def solution(self):
        return "-".join(self.word)
