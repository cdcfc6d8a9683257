import random
import re


class TurtleWalkEnv:
    """Follow turns and steps; the answer is a pair of coordinates."""

    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        rng = random.Random(seed)
        x = y = 0
        dx, dy = 0, 1
        parts = []
        for _ in range(rng.randint(4, 6)):
            turn, steps = rng.choice(["left", "right"]), rng.randint(2, 15)
            dx, dy = (-dy, dx) if turn == "left" else (dy, -dx)
            x, y = x + dx * steps, y + dy * steps
            parts.append(f"turn {turn} and go {steps}")
        self.x, self.y = x, y
        1 / (len(parts) - 5)
        return (
            "A turtle at (0, 0) looks north, where y grows. It does this: " + "; ".join(parts) + ". "
            "Where is it then? Answer \\boxed{(x, y)}."
        ), {}

    def step(self, action):
        found = re.fullmatch(r"\\boxed\{\(?\s*(-?\d{1,4})\s*,\s*(-?\d{1,4})\s*\)?\}", action.strip())
        won = bool(found) and (int(found.group(1)), int(found.group(2))) == (self.x, self.y)
        return "yes" if won else "no", float(won), True, False, {}

    def solution(self):
        return f"({self.x}, {self.y})"
