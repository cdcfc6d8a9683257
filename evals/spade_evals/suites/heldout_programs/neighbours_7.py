import random
import re


class NeighboursEnv:
    """Light all lamps; a lever lights its own lamp and the next, so fewer pulls than dark lamps are given."""

    lamps = 7
    dark = 3
    max_turns = 7

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, object]]:
        r = random.Random(seed)
        first = r.randint(1, self.lamps - 1)
        rest = [i for i in range(1, self.lamps + 1) if i not in (first, first + 1)]
        self.off = {first, first + 1, *r.sample(rest, self.dark - 1)}
        self.turn, self.max_turns = 0, len(self.solution())
        return self.show(), {}

    def show(self) -> str:
        return "lamps " + " ".join(f"{i}{'off' if i in self.off else 'on'}" for i in range(1, self.lamps + 1))

    def solution(self) -> list[str]:
        plan, dark = [], set(self.off)
        while dark:
            plan.append(min(dark))
            dark -= {plan[-1], plan[-1] + 1}
        return [str(i) for i in plan]

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        self.turn += 1
        found = re.fullmatch(r"\\boxed{(\d{1,3})}", action)
        n = int(found.group(1)) if found else 0
        self.off -= {n, n + 1} if 1 <= n <= self.lamps else set()
        done = not self.off
        return self.show(), float(done), done, not done and self.turn >= self.max_turns, {}
