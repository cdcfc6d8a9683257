import random
import re


class KeyRoomsEnv:
    """Rooms in a ring, a key in one of them, a door in another; what is where has to be looked up."""

    max_turns = 20
    rooms = ("hall", "library", "kitchen", "cellar", "attic", "studio", "garden")

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.ring = rng.sample(self.rooms, 7)
        self.at = 0
        self.key, self.door = rng.sample(range(1, 7), 2)
        self.has = False
        self.code = rng.randint(100, 999)
        self.turn = 0
        return (
            f"You stand in the {self.ring[0]}. Seven rooms form a ring. Commands in \\boxed{{}}: forward, back, look, "
            "take, open CODE. Find the key; its label bears a code. Then find the door and open it with the code."
        ), {}

    def step(self, action):
        self.turn += 1
        out = self.turn >= self.max_turns
        found = re.search(r"\\boxed\{([^}]*)\}", action)
        words = found.group(1).lower().split() if found else [""]
        if words[:1] == ["forward"] or words[:1] == ["back"]:
            self.at = (self.at + (1 if words[0] == "forward" else -1)) % 7
            return f"You come to the {self.ring[self.at]}.", 0.0, False, out, {}
        if words[:1] == ["look"]:
            seen = [n for n, k in (("a key", self.key), ("a locked door", self.door)) if k == self.at]
            return "You see " + (seen[0] if seen else "nothing of use") + ".", 0.0, False, out, {}
        if words[:1] == ["take"] and self.at == self.key:
            self.has = True
            return f"You hold the key. Its label says {self.code}.", 0.0, False, out, {}
        if words[:1] == ["open"] and self.at == self.door and self.has:
            won = words[1:] == [str(self.code)]
            return ("The door opens." if won else "Wrong code."), float(won), won, out and not won, {}
        return "Nothing happens.", 0.0, False, out, {}

    def solution(self):
        there = ["forward"] * ((self.key - self.at) % 7) if not self.has else []
        start = self.at if self.has else self.key
        take = [] if self.has else ["take"]
        return there + take + ["forward"] * ((self.door - start) % 7) + [f"open {self.code}"]
