"""Broken on purpose: every seed gives the same task."""


class SameEnv:
    max_turns = 2

    def reset(self, seed=None):
        self.turn = 0
        return "Which number is three more than 4,178?", {}

    def step(self, action):
        self.turn += 1
        won = "4181" in action
        return ("right" if won else "wrong"), float(won), won, not won and self.turn >= 2, {}

    def solution(self):
        return "4181"
