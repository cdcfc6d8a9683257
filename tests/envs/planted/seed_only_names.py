import random
import re


class RaceOrderEnv:
    """Put runners in order from clues; the answer is a sequence of names."""

    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        rng = random.Random(seed)
        names = rng.sample(["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana"], 6)
        names = sorted(names)
        self.order = ["first"]
        clues = [f"{b} came in right behind {a}" for a, b in zip(names, names[1:])]
        rng.shuffle(clues)
        return (
            "Six runners finished one after another. " + ". ".join(clues) + ". "
            "Give all names from first to last, separated by spaces, in \\boxed{}."
        ), {}

    def step(self, action):
        found = re.search(r"\\boxed\{([^}]*)\}", action)
        said = found.group(1).replace(",", " ").split() if found else []
        won = [w.lower() for w in said] == [w.lower() for w in self.order]
        return "Correct." if won else "Not in this order.", 1.0 if won else 0.0, True, False, {}

    def solution(self):
        return " ".join(self.order)
