import random
import re

LEVEL = 1

SIZE, KINDS = {1: (8, "GRSW"), 2: (8, "GRS"), 3: (9, "GS")}[LEVEL]
NAMES = {"G": "gravel", "R": "rock", "S": "sand", "W": "water"}
AHEAD = {"north": (-1, 0), "east": (0, 1), "south": (1, 0), "west": (0, -1)}
TURNS = list(AHEAD)


class LostRoverEnv:
    """A rover knows the map but neither its place nor its heading; drive it until both are certain."""

    max_turns = {1: 10, 2: 14, 3: 22}[LEVEL]

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.map = ["".join(rng.choice(KINDS) for _ in range(SIZE)) for _ in range(SIZE)]
        self.place = (rng.randrange(SIZE), rng.randrange(SIZE))
        self.heading = rng.randrange(4) if LEVEL > 1 else 0
        self.turn = 0
        legend = ", ".join(f"{k} {NAMES[k]}" for k in KINDS)
        way = "It faces north." if LEVEL == 1 else "Nobody knows which way it faces."
        grid = "\n".join(self.map)
        return (
            f"Survey map, north at the top, rows counted from 1 at the top and columns from 1 at the left ({legend}):"
            f"\n{grid}\nThe rover woke up somewhere on it. {way} It stands on {self.ground()}.\n"
            "Drive it: 'ahead' moves one cell, 'left' and 'right' turn it on the spot; it reports the ground under "
            "it, or that the border stopped it. When you are sure where it stands at that moment, report 'at ROW "
            f"COLUMN'. The report is final. One command per turn in \\boxed{{}}, {self.max_turns} turns."
        ), {}

    def ground(self):
        return NAMES[self.map[self.place[0]][self.place[1]]]

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        said = re.fullmatch(
            r"\\boxed\{\s*(?:(ahead|left|right)|at\s+(\d)[\s,]+(\d))\s*\}", action.strip().lower()
        )
        if said is None:
            return "Invalid command: ahead, left, right or 'at ROW COLUMN', boxed.", 0.0, False, late, {}
        if said.group(2):
            right = (int(said.group(2)) - 1, int(said.group(3)) - 1) == self.place
            return (
                ("Confirmed from orbit." if right else "Orbit sees it elsewhere."),
                float(right),
                True,
                False,
                {},
            )
        told = f"Turned {said.group(1)}"
        if said.group(1) == "ahead":
            dr, dc = AHEAD[TURNS[self.heading]]
            r, c = self.place[0] + dr, self.place[1] + dc
            free = 0 <= r < SIZE and 0 <= c < SIZE
            self.place = (r, c) if free else self.place
            told = "Moved one cell" if free else "The border stopped it"
        else:
            self.heading = (self.heading + (1 if said.group(1) == "right" else -1)) % 4
        text = f"{told}. Ground: {self.ground()}. {self.max_turns - self.turn} turns left (ahead, left, right, at)."
        return text, 0.0, False, late, {}

    def solution(self):
        if self.turn:
            return [f"at {self.place[0] + 1} {self.place[1] + 1}"]
        here, heading, plan = self.place, self.heading, []
        for word in ("ahead", "right", "ahead"):
            plan.append(word)
            if word == "right":
                heading = (heading + 1) % 4
            else:
                dr, dc = AHEAD[TURNS[heading]]
                r, c = here[0] + dr, here[1] + dc
                here = (r, c) if 0 <= r < SIZE and 0 <= c < SIZE else here
        return [*plan, f"at {here[0] + 1} {here[1] + 1}"]

    def hint(self):
        return "List every cell and heading that fits the reports so far, and choose the move that splits the list."
