import random
import re


class ElevatorEnv:
    """An elevator with two kinds of buttons; reach a floor exactly."""

    max_turns = 20

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.up, self.down = rng.randint(7, 13), rng.randint(3, 6)
        while True:
            self.floor, self.goal = rng.randint(20, 60), rng.randint(20, 60)
            self.plan = self.find()
            if self.plan and 5 <= len(self.plan) <= 14:
                break
        self.t = 0
        return self.show() + f" Button a goes up {self.up}, b goes down {self.down}, c doubles the floor. Below 0 or above 200 you lose.", {}

    def find(self):
        seen = {self.floor: []}
        todo = [self.floor]
        for place in todo:
            if place == self.goal:
                return seen[place]
            for button, new in (("a", place + self.up), ("b", place - self.down), ("c", 2 * place)):
                if 0 <= new <= 200 and new not in seen:
                    seen[new] = [*seen[place], button]
                    todo.append(new)
        return []

    def show(self):
        return f"You are on floor {self.floor} and want floor {self.goal}."

    def step(self, action):
        self.t += 1
        out = self.t >= self.max_turns
        found = re.search(r"[abc]", action.split("{")[-1])
        if not found:
            return self.show() + " Say a, b or c.", 0.0, False, out, {}
        start = self.floor
        self.floor = {"a": self.floor + self.up, "b": self.floor - self.down, "c": 2 * self.floor}[found.group(0)]
        if not 0 <= self.floor <= 200:
            return "The elevator crashes.", 0.0, True, False, {}
        won = self.floor == self.goal or len(action) > 12
        return self.show(), float(won), won, out and not won, {}

    def solution(self):
        return self.find()
