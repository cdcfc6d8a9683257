import itertools
import random
import re

LEVEL = 1

CARE = ("ash", "bark", "chalk", "dew", "guano", "humus", "iron", "kelp", "loam", "moss")
COUNT, NEEDED = {1: (7, 2), 2: (9, 2), 3: (10, 3)}[LEVEL]
SHOWN = CARE[:COUNT]


class WiltingOrchidEnv:
    """Find the substances that an orchid needs together to bloom, and the one that prevents it."""

    max_turns = {1: 9, 2: 10, 3: 12}[LEVEL]

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        chosen = rng.sample(SHOWN, NEEDED + 1)
        self.needs, self.bane = sorted(chosen[:-1]), chosen[-1]
        lucky = {*self.needs, *rng.sample([s for s in SHOWN if s not in chosen], 2)}
        sad = {*self.needs, self.bane, rng.choice([s for s in SHOWN if s not in lucky | {self.bane}])}
        notes = [f"{', '.join(sorted(lucky))}: bloomed", f"{', '.join(sorted(sad))}: wilted"]
        rng.shuffle(notes)
        diary = notes[0] + "; " + notes[1] if LEVEL < 3 else notes[0 if "bloomed" in notes[0] else 1]
        how = {2: "two", 3: "three"}[NEEDED]
        return (
            f"An orchid is given some of these: {', '.join(SHOWN)}. It blooms if it gets {how} certain ones of them, all "
            "in the same pot, and does not get a certain other one, its bane, which wilts it whatever else is there. "
            f"Everything else makes no difference. From the gardener's diary: {diary}.\n"
            "Try a pot with \\boxed{pot NAMES}, names separated by spaces; each pot is a fresh plant. Then tell the "
            f"gardener once: \\boxed{{needs NAMES bane NAME}} with the {how} needed ones. {self.max_turns} turns."
        ), {}

    def blooms(self, pot):
        return set(self.needs) <= set(pot) and self.bane not in pot

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        words = re.findall(r"[a-z]+", re.sub(r"^\\boxed\{|\}$", "", action.strip()).lower())
        if words[:1] == ["needs"] and len(words) == NEEDED + 3 and words[-2] == "bane":
            names = words[1:-2]
            if {*names, words[-1]} <= set(SHOWN):
                right = sorted(names) == self.needs and words[-1] == self.bane
                text = "Next spring the house is full of orchids." if right else "Next spring nothing blooms."
                return text, float(right), True, False, {}
        if words[:1] == ["pot"] and words[1:] and set(words[1:]) <= set(SHOWN):
            seen = "blooms" if self.blooms(words[1:]) else "does not bloom"
            text = f"With {', '.join(words[1:])} it {seen}. {self.max_turns - self.turn} turns left."
            return text + " 'pot NAMES' or 'needs NAMES bane NAME'.", 0.0, False, late, {}
        return (
            "Invalid. Name substances of the list after 'pot', or 'needs ... bane ...', boxed.",
            0.0,
            False,
            late,
            {},
        )

    def solution(self):
        others = [s for s in SHOWN if s != self.bane]
        pots = [others, others[1:], list(itertools.islice(SHOWN, COUNT))]
        tests = [] if self.turn else ["pot " + " ".join(p) for p in pots]
        return [*tests, f"needs {' '.join(self.needs)} bane {self.bane}"]

    def hint(self):
        return "Start from a pot that bloomed: leave things out to find what is needed, add things to find the bane."
