import random
import re


class SwitchEnv:
    game_type = "tool_use"
    max_turns = 4

    def reset(self, seed=None):
        self.n, self.t = random.Random(seed).randint(100, 999), 0
        return f"Set the dial to {self.n}.", {}

    def schemas(self):
        row = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        return [{"type": "function", "function": {"name": "dial", "description": "sets the dial", "parameters": row}}]

    def step(self, action):
        self.t += 1
        if f'"n": {self.n}' in action:
            self.n = -1
        won = "<answer>done</answer>" in action and self.n == -1
        return "ok", float(won), won, self.t >= 4 and not won, {}

    def solution(self):
        return ['<tool_call>{"name": "dial", "arguments": {"n": %d}}</tool_call>' % self.n, "<answer>done</answer>"]
