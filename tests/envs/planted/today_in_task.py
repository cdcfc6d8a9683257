import datetime
import random
import re


class DueDateEnv:
    """Count days over month ends; the answer is a date."""

    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        rng = random.Random(seed)
        start = datetime.date.today()
        days = rng.randint(35, 400)
        self.due = start + datetime.timedelta(days=days)
        return f"A loan starts on {start.isoformat()} and runs {days} days. On which date is it due? \\boxed{{YYYY-MM-DD}}", {}

    def step(self, action):
        found = re.search(r"\\boxed\{\s*(\d{4}-\d\d-\d\d)\s*\}", action)
        won = bool(found) and found.group(1) == self.due.isoformat()
        return "Done.", float(won), True, False, {}

    def solution(self):
        return self.due.isoformat()
