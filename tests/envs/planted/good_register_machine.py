import random
import re


class RegisterMachineEnv:
    """Run a small program in the head."""

    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        rng = random.Random(seed)
        regs = {"A": rng.randint(2, 9), "B": rng.randint(2, 9), "C": 0}
        lines = [f"A = {regs['A']}", f"B = {regs['B']}", "C = 0"]
        for _ in range(7):
            x, y = rng.choice("ABC"), rng.choice("ABC")
            kind = rng.choice(["add", "double", "set"])
            if kind == "add":
                regs[x] += regs[y]
                lines.append(f"{x} = {x} + {y}")
            elif kind == "double":
                n = rng.randint(2, 4)
                regs[x] *= n
                lines.append(f"{x} = {x} * {n}")
            else:
                n = rng.randint(5, 30)
                regs[x] = regs[y] + n
                lines.append(f"{x} = {y} + {n}")
        self.x = regs["A"] * 1000 + regs["B"] * 10 + regs["C"]
        return "Run this:\n" + "\n".join(lines) + "\nWhat is 1000 A + 10 B + C? Answer \\boxed{n}.", {}

    def step(self, action):
        found = re.search(r"\\boxed\{\s*(\d+)\s*\}", action[:200])
        won = bool(found) and int(found.group(1)) == self.x
        return "ok" if won else "wrong", float(won), True, False, {}

    def solution(self):
        return str(self.x)
