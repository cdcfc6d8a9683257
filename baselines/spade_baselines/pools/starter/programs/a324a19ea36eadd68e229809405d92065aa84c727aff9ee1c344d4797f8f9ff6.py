import random
import re

WHO = 'A tamer'
BOAT = 'cage'
BANKS = ['left', 'right']
POOL = ['lion', 'seal', 'clown', 'ape', 'pony', 'llama', 'swan']
HARM = 'frightens'
COUNT = 5


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class FerryEnv:
    """Bring everything across although some pairs may not be left alone."""

    max_turns = 20

    def reset(self, seed=None):
        rng = random.Random(seed)
        while True:
            self.things = rng.sample(POOL, COUNT)
            pairs = [(a, b) for i, a in enumerate(self.things) for b in self.things[i + 1 :]]
            self.bad = set(rng.sample(pairs, COUNT - 1))
            self.room = 2 if COUNT == 4 else 2
            self.plan = self.way()
            if self.plan and 5 <= len(self.plan) <= 15:
                break
        self.here, self.side, self.turn = frozenset(self.things), 0, 0
        harm = ", ".join(f"{a} {HARM} {b}" for a, b in sorted(self.bad))
        return (
            f"{WHO} stands on the {BANKS[0]} side with {', '.join(self.things)} and must bring all to the {BANKS[1]} side. The {BOAT} takes {WHO.lower()} "
            f"and up to {self.room} of them. Without {WHO.lower()} beside them: {harm}, and all is lost. 'cross' goes alone, "
            f"'cross {self.things[0]} {self.things[1]}' takes two along. You have {self.max_turns} turns. Put one action in \\boxed{{}}."
        ), {}

    def safe(self, group):
        return not any(a in group and b in group for a, b in self.bad)

    def way(self):
        """Shortest list of crossings, or None."""
        everything = frozenset(self.things)
        start = (everything, 0)
        paths, queue = {start: []}, [start]
        for here, side in queue:
            near = here if side == 0 else everything - here
            loads = [()] + [(a,) for a in self.things] + [(a, b) for i, a in enumerate(self.things) for b in self.things[i + 1 :]]
            for load in loads:
                if len(load) > self.room or not set(load) <= near or not self.safe(near - set(load)):
                    continue
                new = (here - set(load) if side == 0 else here | set(load), 1 - side)
                if new not in paths:
                    paths[new] = [*paths[here, side], " ".join(["cross", *load])]
                    if not new[0]:
                        return paths[new]
                    queue.append(new)
        return None

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        word, *load = boxed(action).split() or [""]
        near = self.here if self.side == 0 else frozenset(self.things) - self.here
        if word != "cross" or len(load) > self.room or len(set(load)) != len(load) or not set(load) <= near:
            return f"Say 'cross' and up to {self.room} of those on the {BANKS[self.side]} side: {', '.join(sorted(near)) or 'nothing'}.", 0.0, False, late, {}
        if not self.safe(near - set(load)):
            return "What was left behind alone is lost.", 0.0, True, False, {}
        self.here = self.here - set(load) if self.side == 0 else self.here | set(load)
        self.side = 1 - self.side
        if not self.here:
            return f"Everything is on the {BANKS[1]} side.", 1.0, True, False, {}
        left, right = sorted(self.here), sorted(set(self.things) - self.here)
        return f"{BANKS[0]}: {', '.join(left)}. {BANKS[1]}: {', '.join(right) or 'nothing'}. You are on the {BANKS[self.side]} side.", 0.0, False, late, {}

    def solution(self):
        return self.plan

    def hint(self):
        return "Whatever conflicts with most travels most; bringing something back is allowed."
