import random
import re


class TankEnv:
    """Fill a tank to a mark with a pump of unknown rate."""

    max_turns = 6

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.rate = rng.randint(3, 19)
        self.minutes = rng.randint(20, 99)
        self.level = self.turn = 0
        return (
            f"A pump of unknown rate fills an empty tank, and the mark is at {self.rate * self.minutes} litres. "
            "Actions: run N lets the pump run for N whole minutes, done ends the game. "
            "You win if the level is exactly at the mark then; above the mark the tank spills and you lose. "
            "Put one action in \\boxed{}."
        ), {}

    def step(self, action):
        self.turn += 1
        out_of_turns = self.turn >= self.max_turns
        command = action.strip().removeprefix("\\boxed{").removesuffix("}").strip().lower()
        if command == "done":
            won = self.level == self.rate * self.minutes
            text = "Exactly at the mark: you win." if won else "Not at the mark: you lose."
            return text, float(won), True, False, {}
        run = re.fullmatch(r"run (\d{1,3})", command)
        if run is None or int(run.group(1)) == 0:
            return "Say run N with a number from 1, or done.", 0.0, False, out_of_turns, {}
        self.level += self.rate * int(run.group(1))
        if self.level > self.rate * self.minutes:
            return "The tank spills: you lose.", 0.0, True, False, {}
        return f"<tool_response>The level is {self.level} litres.", 0.0, False, out_of_turns, {}

    def solution(self):
        return ["run 1", f"run {self.minutes - 1}", "done"]
