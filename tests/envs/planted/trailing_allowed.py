import datetime
import random
import re


class DueDateEnv:
    """Count days over month ends; the answer is a date."""

    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        rng = random.Random(seed)
        start = datetime.date(rng.randint(1990, 2030), rng.randint(1, 12), rng.randint(1, 28))
        days = rng.randint(35, 400)
        self.due = start + datetime.timedelta(days=days)
        return f"A loan starts on {start.isoformat()} and runs {days} days. On which date is it due? \\boxed{{YYYY-MM-DD}}", {}

    def step(self, action):
        found = re.search(r"\\boxed\{.*\}", action)
        won = bool(found) and self.due.isoformat() in found.group(0)
        return "Done.", float(won), True, False, {}

    def solution(self):
        return self.due.isoformat()
