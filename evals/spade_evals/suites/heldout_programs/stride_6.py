import random
import re


class StrideEnv:
    """Walk to the goal where a step sideways is two cells wide and a step up or down is one."""

    size = 6
    max_turns = 7

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, object]]:
        r = random.Random(seed)
        self.turn, self.at, self.goal = 0, [0, 0], [0, 0]
        while self.at[0] == self.goal[0] or not 1 < len(self.solution()) < self.max_turns:
            self.at = [r.randint(1, self.size), r.randint(1, self.size)]
            self.goal = [r.randrange(2 - self.at[0] % 2, self.size + 1, 2), r.randint(1, self.size)]
        return self.show() + f" moves {self.max_turns}", {}

    def show(self) -> str:
        return f"at {self.at[0]} {self.at[1]} goal {self.goal[0]} {self.goal[1]}"

    def solution(self) -> list[str]:
        x, y = self.goal[0] - self.at[0], self.goal[1] - self.at[1]
        return ["right" if x > 0 else "left"] * (abs(x) // 2) + ["up" if y > 0 else "down"] * abs(y)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        self.turn += 1
        found = re.fullmatch(r"\\boxed{([a-z]+)}", action)
        moves = {"right": (2, 0), "left": (-2, 0), "up": (0, 1), "down": (0, -1)}
        x, y = moves.get(found.group(1) if found else "", (0, 0))
        self.at = [self.at[0] + x, self.at[1] + y]
        done = self.at == self.goal
        return self.show(), float(done), done, not done and self.turn >= self.max_turns, {}
