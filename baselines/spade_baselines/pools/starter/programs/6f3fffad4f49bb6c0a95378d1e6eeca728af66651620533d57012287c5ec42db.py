import random
import re

WHO = 'A smuggler'
ODD = 'mirror'
SIZE = 7
ALPHABET = 'abcdefghijklmnopqrstuvwxyz'


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class CipherEnv:
    """Find out from two pairs how texts are enciphered and decipher a third."""

    game_type = "single_turn"
    max_turns = 1

    def encode(self, text):
        n, out = len(ALPHABET), []
        for i, c in enumerate(text):
            at = ALPHABET.index(c)
            if ODD == "shift":
                at += self.keys[i % 2]
            elif ODD == "mirror":
                at = self.keys[0] - at if i % 2 else at + self.keys[1]
            else:
                at += self.keys[0] + self.keys[1] * i
            out.append(ALPHABET[at % n])
        return "".join(out)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.keys = [rng.randint(2, len(ALPHABET) - 3), rng.randint(2, 9)]
        texts = ["".join(rng.choice(ALPHABET) for _ in range(SIZE)) for _ in range(3)]
        self.answer = texts[2]
        how = {
            "shift": "letters on odd and on even places are moved along the alphabet by two different numbers",
            "mirror": "letters on odd places are moved along the alphabet, those on even places also have its direction reversed",
            "growing": "each letter is moved along the alphabet, and by a constant more from place to place",
        }[ODD]
        return (
            f"{WHO} enciphers like this: {how}; the alphabet is {ALPHABET} and begins again after its end. "
            f"{texts[0]} becomes {self.encode(texts[0])}, and {texts[1]} becomes {self.encode(texts[1])}. "
            f"What was {self.encode(texts[2])} before? Answer in \\boxed{{}}."
        ), {}

    def step(self, action):
        right = boxed(action) == self.answer
        return "Deciphered." if right else "That makes no sense.", float(right), True, False, {}

    def solution(self):
        return self.answer

    def hint(self):
        return "Number the letters, subtract clear from enciphered place by place, and undo the differences."
