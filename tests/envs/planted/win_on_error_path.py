import json
import random


class JsonCountsEnv:
    """Count colours in a list; the answer is a JSON object."""

    max_turns = 2

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.t = 0
        beads = [rng.choice(["red", "blue", "green", "white"]) for _ in range(rng.randint(14, 24))]
        self.counts = {c: beads.count(c) for c in sorted(set(beads))}
        return (
            "Beads on a string: " + ", ".join(beads) + ". Count each colour that occurs and answer with a JSON "
            'object in a box, such as \\boxed{"red": 2, "blue": 1}.'
        ), {}

    def step(self, action):
        self.t += 1
        text = action.strip()
        if text.startswith("\\boxed{") and text.endswith("}"):
            text = text[len("\\boxed{") : -1]
        try:
            said = json.loads(text)
        except ValueError:
            return "That is no JSON object.", 1.0, True, False, {}
        won = said == self.counts
        return ("All right." if won else "Some count is off."), float(won), won, self.t >= 2 and not won, {}

    def solution(self):
        return json.dumps(self.counts)
