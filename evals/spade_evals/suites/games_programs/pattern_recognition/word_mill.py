import random
import re

LEVEL = 1

VOWELS = "aeiou"
_SYLLABLES = (
    "ba be bo ca co cu da de di fa fe fo ga go gu ha he hi ja jo ka ke ki la le li lo ma me mi mo na ne no pa pe "
    "pi po ra re ri ro sa se si so ta te ti to va ve vi vo za zo"
)
SYLLABLES = _SYLLABLES.split()


def _caesar(word, k):
    return "".join(chr((ord(c) - 97 + k) % 26 + 97) for c in word)


def _next_vowel(word):
    return "".join(VOWELS[(VOWELS.index(c) + 1) % 5] if c in VOWELS else c for c in word)


STEPS = (
    lambda w, k: w[::-1],
    lambda w, k: _caesar(w, k),
    lambda w, k: w[k % len(w) :] + w[: k % len(w)],
    lambda w, k: _next_vowel(w),
    lambda w, k: w[::2] + w[1::2],
    lambda w, k: "".join(w[i : i + 2][::-1] for i in range(0, len(w), 2)),
    lambda w, k: w[len(w) // 2 :] + w[: len(w) // 2],
    lambda w, k: "".join(c + c if c in VOWELS else c for c in w),
    lambda w, k: w + w[k % 3],
)


class WordMillEnv:
    """Find out from examples what a machine does to words, and apply it to a word it will not take."""

    max_turns = {1: 5, 2: 6, 3: 7}[LEVEL]

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        self.steps = [(k, rng.randint(2, 5)) for k in rng.sample(range(len(STEPS)), LEVEL)]
        self.word = "".join(rng.sample(SYLLABLES, 4))
        parts = {
            1: "one simple thing",
            2: "two simple things, one after the other,",
            3: "three simple things in a row",
        }
        return (
            f"You put a word into the mill, it does {parts[LEVEL]} to it and hands out the result, always in the "
            "same way. It may move letters, replace or double some of them, or add one. Words of 2 to 16 letters from a "
            f"to z will do, sense does not matter, only '{self.word}' and its rearrangements are refused. Tell what "
            f"the mill would make of '{self.word}'.\n"
            "\\boxed{mill WORD} shows what becomes of a word, \\boxed{makes WORD} states your result, once. "
            f"Turns: {self.max_turns}."
        ), {}

    def mill(self, word):
        for k, shift in self.steps:
            word = STEPS[k](word, shift)
        return word

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        said = re.fullmatch(r"\\boxed\{\s*(mill|makes)\s+([a-z]{2,40})\s*\}", action.strip().lower())
        if said and said.group(1) == "makes":
            right = said.group(2) == self.mill(self.word)
            return (
                ("The mill says the same." if right else "The mill differs."),
                float(right),
                True,
                False,
                {},
            )
        word = said.group(2) if said else ""
        if not word or len(word) > 16 or sorted(word) == sorted(self.word):
            return (
                "Invalid. The mill wants 'mill WORD' with another word, or 'makes WORD', boxed.",
                0.0,
                False,
                late,
                {},
            )
        text = f"{word} -> {self.mill(word)}. {self.max_turns - self.turn} turns left; 'mill' or 'makes' in \\boxed{{}}."
        return text, 0.0, False, late, {}

    def solution(self):
        words = [] if self.turn else ["bcdfghjk", "abcdefghi"]
        return [*(f"mill {w}" for w in words), f"makes {self.mill(self.word)}"]

    def hint(self):
        return "Use words of different letters in alphabetical order, with and without vowels, to see where each goes."
