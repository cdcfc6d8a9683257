import random
import re

STORY = 'A librarian keeps books in heaps'
NAMES = 'uvwxy'
MOVE = 'lay'
STACKS = 4
FAR = 5


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class CratesEnv:
    """Rearrange stacks, one thing from top to top at a time, into a wanted state."""

    max_turns = 14

    def reset(self, seed=None):
        rng = random.Random(seed)
        while True:
            self.first = self.random_state(rng)
            self.goal = self.random_state(rng)
            self.plan = self.way()
            if self.plan and FAR <= len(self.plan) <= 9:
                break
        self.now, self.turn = self.first, 0
        return (
            f"{STORY}: {self.shown(self.first)} (the last letter is on top). Wanted: {self.shown(self.goal)}. '{MOVE} 2 1' takes the top of 2 "
            f"to the top of 1. You have {self.max_turns} turns. Put one action in \\boxed{{}}."
        ), {}

    def random_state(self, rng):
        state = [""] * STACKS
        for name in rng.sample(NAMES, len(NAMES)):
            state[rng.randrange(STACKS)] += name
        return tuple(state)

    def shown(self, state):
        return ", ".join(f"{i} holds {s or 'nothing'}" for i, s in enumerate(state, 1))

    def after(self, state, a, b):
        if a == b or not state[a]:
            return None
        new = list(state)
        new[a], new[b] = state[a][:-1], state[b] + state[a][-1]
        return tuple(new)

    def way(self):
        paths, queue = {self.first: []}, [self.first]
        for state in queue:
            if state == self.goal:
                return paths[state]
            if len(paths[state]) >= 9:
                return None
            for a in range(STACKS):
                for b in range(STACKS):
                    new = self.after(state, a, b)
                    if new is not None and new not in paths:
                        paths[new] = [*paths[state], f"{MOVE} {a + 1} {b + 1}"]
                        queue.append(new)
        return None

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        found = re.fullmatch(MOVE + r" (\d) (\d)", boxed(action))
        places = [int(n) - 1 for n in found.groups()] if found else []
        new = self.after(self.now, *places) if places and all(0 <= p < STACKS for p in places) else None
        if new is None:
            return f"Say '{MOVE} FROM TO' with numbers up to {STACKS}; {self.shown(self.now)}.", 0.0, False, late, {}
        self.now = new
        if new == self.goal:
            return "That is the wanted state.", 1.0, True, False, {}
        return f"{self.shown(new)}. {self.max_turns - self.turn} turns left.", 0.0, False, late, {}

    def solution(self):
        return self.plan

    def hint(self):
        return "Build each stack from the bottom; clear what is above a needed piece onto a stack that is not needed yet."
