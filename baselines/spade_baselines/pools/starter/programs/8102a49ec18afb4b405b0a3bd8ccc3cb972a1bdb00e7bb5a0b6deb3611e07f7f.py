import random
import re

THINGS = 'matches'
HEAPS = 3
TOP = 9
TAKE = 'take'
LAST = True


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class HeapsEnv:
    """Take from heaps in turns against a player without mistakes; whoever takes the last one wins."""

    max_turns = 20

    def reset(self, seed=None):
        rng = random.Random(seed)
        while True:
            self.heaps = [rng.randint(2, TOP) for _ in range(HEAPS)]
            if self.total() and sum(self.heaps) > 10 and len(set(self.heaps)) > 1:
                break
        self.turn, self.start = 0, tuple(self.heaps)
        return (
            f"There are {HEAPS} heaps of {THINGS}: {self.shown()}. We {TAKE} in turns, as many as we like but at least one, from one "
            f"heap only; whoever gets the very last one wins. You begin. '{TAKE} 3 from 2' takes three from heap 2. "
            "Put one action in \\boxed{}."
        ), {}

    def total(self):
        value = 0
        for heap in self.heaps:
            value ^= heap
        return value

    def shown(self):
        return ", ".join(f"heap {i} has {n}" for i, n in enumerate(self.heaps, 1))

    def reply(self):
        """The opponent: the winning move if there is one, else one from the largest heap."""
        value = self.total()
        for i, heap in enumerate(self.heaps):
            if value and heap ^ value < heap:
                taken = heap - (heap ^ value)
                break
        else:
            i, taken = self.heaps.index(max(self.heaps)), 1
        self.heaps[i] -= taken
        return f"I {TAKE} {taken} from {i + 1}"

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        found = re.fullmatch(TAKE + r" (\d{1,2}) from (\d)", boxed(action))
        if not found or not 1 <= int(found.group(2)) <= HEAPS or not 1 <= int(found.group(1)) <= self.heaps[int(found.group(2)) - 1]:
            return f"Say '{TAKE} N from H'; {self.shown()}.", 0.0, False, late, {}
        self.heaps[int(found.group(2)) - 1] -= int(found.group(1))
        if not any(self.heaps):
            return "You got the last one: you win.", 1.0, True, False, {}
        told = self.reply()
        if not any(self.heaps):
            return f"{told}, and that was the last: you lose.", 0.0, True, False, {}
        return f"{told}; {self.shown()}.", 0.0, False, late, {}

    def solution(self):
        kept, plan = list(self.heaps), []
        self.heaps = list(self.start)
        while any(self.heaps):
            value = self.total()
            i = next(i for i, heap in enumerate(self.heaps) if heap ^ value < heap)
            plan.append(f"{TAKE} {self.heaps[i] - (self.heaps[i] ^ value)} from {i + 1}")
            self.heaps[i] ^= value
            if any(self.heaps):
                self.reply()
        self.heaps = kept
        return plan

    def hint(self):
        return "Write the heaps in binary and always leave every column with an even number of ones."
