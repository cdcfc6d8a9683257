SKILL = "Spatial Reasoning"
VARIANTS = [
    {"STORY": "You stand in a cave and see only the passages of the chamber you are in", "GO": "go", "GOAL": "daylight", "SIDE": 4},
    {"STORY": "A submarine is in a flooded mine and feels only the openings around it", "GO": "sail", "GOAL": "the sea", "SIDE": 5},
    {"STORY": "A cleaning robot is in a dark library and senses only gaps next to it", "GO": "roll", "GOAL": "its charger", "SIDE": 5},
]


class FogEnv:
    """Find the way out of a maze of which only the present cell is seen."""

    max_turns = 25

    def reset(self, seed=None):
        rng = random.Random(seed)
        while True:
            self.doors = self.maze(rng)
            cells = list(self.doors)
            self.start, self.exit = rng.sample(cells, 2)
            self.path = self.way()
            if 5 <= len(self.path) <= 11:
                break
        self.at, self.turn = self.start, 0
        dx, dy = self.exit[0] - self.start[0], self.exit[1] - self.start[1]
        where = " and ".join(f"{abs(n)} {word}" for n, word in ((dx, "east" if dx > 0 else "west"), (dy, "north" if dy > 0 else "south")) if n)
        return (
            f"{STORY}. {GOAL.capitalize()} is {where} of here, but walls are in between. '{GO} north' and likewise east, south, west move by "
            f"one. {self.seen()} You have {self.max_turns} turns. Put one action in \\boxed{{}}."
        ), {}

    def maze(self, rng):
        cells = [(x, y) for x in range(SIDE) for y in range(SIDE)]
        doors = {c: set() for c in cells}
        seen, stack = {cells[0]}, [cells[0]]
        while stack:
            here = stack[-1]
            options = [(d, (here[0] + x, here[1] + y)) for d, (x, y) in WAYS.items()]
            options = [(d, c) for d, c in options if c in doors and c not in seen]
            if not options:
                stack.pop()
                continue
            d, new = rng.choice(options)
            doors[here].add(d)
            doors[new].add(BACK[d])
            seen.add(new)
            stack.append(new)
        return doors

    def way(self):
        paths, queue = {self.start: []}, [self.start]
        for here in queue:
            for d in sorted(self.doors[here]):
                new = (here[0] + WAYS[d][0], here[1] + WAYS[d][1])
                if new not in paths:
                    paths[new] = [*paths[here], f"{GO} {d}"]
                    queue.append(new)
        return paths[self.exit]

    def seen(self):
        return f"Open here: {', '.join(sorted(self.doors[self.at]))}."

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        found = re.fullmatch(GO + r" (north|east|south|west)", boxed(action))
        if not found:
            return f"Say '{GO}' and a direction. {self.seen()}", 0.0, False, late, {}
        d = found.group(1)
        if d not in self.doors[self.at]:
            return f"A wall. {self.seen()}", 0.0, False, late, {}
        self.at = (self.at[0] + WAYS[d][0], self.at[1] + WAYS[d][1])
        if self.at == self.exit:
            return f"You have reached {GOAL}.", 1.0, True, False, {}
        return f"You moved {d}. {self.seen()}", 0.0, False, late, {}

    def solution(self):
        return self.path

    def hint(self):
        return "Keep a map of where you are and what you tried; prefer the direction of the goal and turn back only at dead ends."


WAYS = {"north": (0, 1), "east": (1, 0), "south": (0, -1), "west": (-1, 0)}
BACK = {"north": "south", "south": "north", "east": "west", "west": "east"}
