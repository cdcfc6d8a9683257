import random
import re

LEVEL = 1

CELLS = {1: 7, 2: 10, 3: 13}[LEVEL]


class SapperRowEnv:
    """Locate buried charges in a row from counts over neighbouring cells."""

    max_turns = {1: 7, 2: 9, 3: 12}[LEVEL]

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.charges = sorted(rng.sample(range(1, CELLS + 1), rng.randint(CELLS // 3, 2 * CELLS // 3)))
        self.turn = 0
        return (
            f"An old road has {CELLS} slabs in a row, numbered 1 to {CELLS}. Under {len(self.charges)} of them lies "
            "a charge. The probe, set on slab K, says how many charges lie under K and its direct neighbours "
            "together. Mark all charged slabs at once; one mistake and the work is lost.\n"
            "Commands in \\boxed{}: 'probe K', or 'mark' followed by the slab numbers, as in 'mark 2 5 6'. "
            f"{self.max_turns} commands at most, the marking included."
        ), {}

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        said = re.fullmatch(r"\\boxed\{\s*(probe|mark)((?:[\s,]+\d{1,2})+)\s*\}", action.strip(), re.I)
        slabs = [int(n) for n in re.findall(r"\d+", said.group(2))] if said else []
        if (
            not slabs
            or not all(1 <= s <= CELLS for s in slabs)
            or (said.group(1).lower() == "probe" and slabs[1:])
        ):
            text = "Invalid command. 'probe K' with one slab, or 'mark' with slab numbers, in \\boxed{}."
            return text, 0.0, False, late, {}
        if said.group(1).lower() == "mark":
            right = sorted(set(slabs)) == self.charges
            return ("All clear." if right else "A dull thud. Wrong slabs."), float(right), True, False, {}
        k = slabs[0]
        count = sum(abs(k - c) <= 1 for c in self.charges)
        text = f"Probe on {k}: {count}. Commands left: {self.max_turns - self.turn}. Next command in \\boxed{{}}."
        return text, 0.0, False, late, {}

    def solution(self):
        plan = [f"probe {k}" for k in (2, 5, CELLS)] if not self.turn else []
        return [*plan, "mark " + " ".join(map(str, self.charges))]

    def hint(self):
        return "Two probes side by side differ only by the slabs at their outer ends."
