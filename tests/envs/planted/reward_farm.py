import random


class QuizChainEnv:
    """Five sums one after another; each right answer is a fifth of the way."""

    max_turns = 9

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.tasks = [(rng.randint(12, 99), rng.randint(3, 19), rng.randint(10, 99)) for _ in range(5)]
        self.done = self.turn = 0
        return "Five tasks follow. " + self.ask() + " Answer each in \\boxed{}.", {}

    def ask(self):
        a, b, c = self.tasks[self.done]
        return f"Task {self.done + 1}: what is {a} times {b} minus {c}?"

    def step(self, action):
        self.turn += 1
        a, b, c = self.tasks[self.done]
        out = False
        if action.replace(" ", "") != "\\boxed{%d}" % (a * b - c):
            return "That is wrong. " + self.ask(), self.done / 5, False, out, {}
        self.done += 1
        if self.done == 5:
            self.done = 0
            return "Again. " + self.ask(), 1.0, False, False, {}
        return "Right. " + self.ask(), self.done / 5, False, out, {}

    def solution(self):
        return [str(a * b - c) for a, b, c in self.tasks[self.done :]]
