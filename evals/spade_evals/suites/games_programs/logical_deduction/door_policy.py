import itertools
import random
import re

LEVEL = 1

GUEST = {
    "cloak": ("red", "black", "white"),
    "mask": ("fox", "owl", "hare"),
    "gift": ("wine", "bread", "coin"),
    "age": ("young", "old"),
}
LISTED, ACTIVE = {1: (12, 2), 2: (14, 3), 3: (17, 4)}[LEVEL]


class DoorPolicyEnv:
    """Find out which rules of a list a doorkeeper really applies by sending guests."""

    max_turns = {1: 13, 2: 13, 3: 16}[LEVEL]

    def reset(self, seed=None):
        rng = random.Random(seed)
        pairs = [
            (a, b) for one, two in itertools.combinations(GUEST, 2) for a in GUEST[one] for b in GUEST[two]
        ]
        self.rules = rng.sample(pairs, LISTED)
        self.active = sorted(rng.sample(range(LISTED), ACTIVE))
        self.turn = 0
        lines = "\n".join(f"{k}. turn away {a} with {b}" for k, (a, b) in enumerate(self.rules, start=1))
        kinds = "; ".join(f"{key} {' or '.join(values)}" for key, values in GUEST.items())
        return (
            f"The masked ball has a book of {LISTED} rules, but the doorkeeper applies exactly {ACTIVE} of them and "
            f"admits everybody else:\n{lines}\n"
            f"A guest has one of each: {kinds}. Send guests to the door and watch, for instance 'send white owl "
            f"coin old' (cloak, mask, gift, age). When you know, give the numbers of the {ACTIVE} applied rules, "
            f"such as 'rules {' '.join(map(str, range(1, ACTIVE + 1)))}'; that ends the evening. One action per "
            f"turn inside \\boxed{{}}, {self.max_turns} turns."
        ), {}

    def admits(self, guest, active):
        return not any(self.rules[k][0] in guest and self.rules[k][1] in guest for k in active)

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        said = re.fullmatch(r"\\boxed\{\s*(send|rules)((?:\s+\w+)+)\s*\}", action.strip().lower())
        words = said.group(2).split() if said else []
        kind = said.group(1) if said else ""
        if (
            kind == "send"
            and len(words) == 4
            and all(w in v for w, v in zip(words, GUEST.values(), strict=True))
        ):
            seen = "is admitted" if self.admits(words, self.active) else "is turned away"
            text = f"The guest ({' '.join(words)}) {seen}. {self.max_turns - self.turn} turns left: 'send ...' or 'rules ...' in \\boxed{{}}."
            return text, 0.0, False, late, {}
        numbers = sorted({int(w) - 1 for w in words if w.isascii() and w.isdigit() and len(w) < 4})
        if kind == "rules" and len(words) == len(numbers) == ACTIVE and set(numbers) <= set(range(LISTED)):
            every = itertools.product(*GUEST.values())
            right = all(self.admits(g, numbers) == self.admits(g, self.active) for g in every)
            return ("So it is." if right else "The doorkeeper laughs: no."), float(right), True, False, {}
        text = f"Invalid. Use 'send CLOAK MASK GIFT AGE', or 'rules' with {ACTIVE} different numbers, in \\boxed{{}}."
        return text, 0.0, False, late, {}

    def solution(self):
        guests = ["send red fox wine young", "send black owl bread old", "send white hare coin young"]
        return [*guests, "rules " + " ".join(str(k + 1) for k in self.active)]

    def hint(self):
        return "An admitted guest clears every rule that fits; choose guests whom several open rules fit."
