import random
import re

LEVEL = 1

PAIRS = {1: 4, 2: 5, 3: 6}[LEVEL]
KINDS = ("left", "right", "clock")
PLACES = ("attic", "bakery", "cellar", "dairy", "engine", "forge")[:PAIRS]


class TwinDialsEnv:
    """For pairs of dials that move together, tell which drives which and which only share a hidden clock."""

    max_turns = {1: 10, 2: 9, 3: 11}[LEVEL]

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        self.kind = [rng.choice(KINDS) for _ in PLACES]
        self.gain = [(rng.randint(2, 5), rng.randint(3, 19)) for _ in PLACES]
        self.beat = [rng.sample(range(11, 60), self.max_turns + 1) for _ in PLACES]
        self.noise = [
            [rng.randint(-2, 2) if LEVEL == 3 else 0 for _ in range(self.max_turns + 1)] for _ in PLACES
        ]
        rooms = ", ".join(PLACES)
        shown = "; ".join(f"{p} {a} and {b}" for p, (a, b) in zip(PLACES, self.read({}), strict=True))
        wobble = " Needles tremble by up to two." if LEVEL == 3 else ""
        several = "one dial" if LEVEL == 1 else "dials of different rooms at once"
        return (
            f"A mill has a pair of dials, left and right, in each of its rooms: {rooms}. All of them move all the time "
            "by themselves, and within a room the two move together. In some rooms the left dial drives the right one, "
            "in some the right one drives the left one, and in some both follow a hidden clock and neither drives the "
            f"other.{wobble} Readings now: {shown}.\n"
            f"You may hold {several} at a value from 0 to 99 and read all pairs a moment later: 'hold "
            f"{PLACES[0]} left 50'"
            + ("" if LEVEL == 1 else f", or 'hold {PLACES[0]} left 50, {PLACES[1]} right 70'")
            + ". Then everything is let go again. 'watch' only reads. Finally say for every room in the order above "
            f"who drives: 'verdict {' '.join(['left', 'right', 'clock', 'left', 'left', 'right'][:PAIRS])}'. There is "
            f"one verdict. Write your action in \\boxed{{}}, {self.max_turns} turns."
        ), {}

    def read(self, held):
        """(left, right) of each room; what drives follows the hidden beat unless it is held."""
        rows = []
        for k, place in enumerate(PLACES):
            beat, (gain, shift) = self.beat[k][self.turn % len(self.beat[k])], self.gain[k]
            left, right = held.get((place, "left")), held.get((place, "right"))
            trembling = self.noise[k][self.turn % len(self.noise[k])]
            if self.kind[k] == "right":
                b = beat if right is None else right
                a = gain * b + shift + trembling if left is None else left
            elif self.kind[k] == "left":
                a = beat if left is None else left
                b = gain * a + shift + trembling if right is None else right
            else:
                a = beat if left is None else left
                b = gain * beat + shift + trembling if right is None else right
            rows.append((a, b))
        return rows

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        text = re.sub(r"^\\boxed\{|\}$", "", action.strip()).strip().lower()
        words = text.split()
        if words[:1] == ["verdict"] and len(words) == PAIRS + 1 and set(words[1:]) <= set(KINDS):
            right = words[1:] == self.kind
            return (
                ("The miller agrees." if right else "The miller knows better."),
                float(right),
                True,
                False,
                {},
            )
        parts = [re.fullmatch(r"\s*([a-z]+)\s+(left|right)\s+(\d{1,2})\s*", p) for p in text[4:].split(",")]
        holds = text.startswith("hold") and all(p and p[1] in PLACES for p in parts)
        held = {(p[1], p[2]): int(p[3]) for p in parts} if holds else {}
        rooms = [place for place, _ in held]
        if text == "watch" or (
            held and len(set(rooms)) == len(parts) and len(parts) <= (1 if LEVEL == 1 else PAIRS)
        ):
            rows = zip(PLACES, self.read(held), strict=True)
            shown = "; ".join(f"{p} {a} and {b}" for p, (a, b) in rows)
            told = f"Readings (left and right): {shown}. {self.max_turns - self.turn} turns left: hold, watch, verdict."
            return told, 0.0, False, late, {}
        told = f"Invalid. 'hold ROOM left|right NUMBER', 'watch', or 'verdict' with {PAIRS} of left, right, clock."
        return told, 0.0, False, late, {}

    def solution(self):
        tests = [] if self.turn else [f"hold {PLACES[0]} left 50", f"hold {PLACES[0]} right 70"]
        return [*tests, "verdict " + " ".join(self.kind)]

    def hint(self):
        return "A driven dial follows a held one; if holding either leaves the other free, the clock drives both."
