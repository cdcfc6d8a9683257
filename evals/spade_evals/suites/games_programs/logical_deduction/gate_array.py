import itertools
import random
import re

LEVEL = 1

WIRES = {1: 4, 2: 5, 3: 6}[LEVEL]
GATES = WIRES - 1
KINDS = {
    "and": lambda p, q: p & q,
    "or": lambda p, q: p | q,
    "xor": lambda p, q: p ^ q,
    "nand": lambda p, q: 1 - (p & q),
    "nor": lambda p, q: 1 - (p | q),
    "xnor": lambda p, q: 1 - (p ^ q),
}
PLAN = {
    1: "g1 joins w1 and w2, g2 joins w3 and w4, g3 joins g1 and g2 and drives the lamp",
    2: "g1 joins w1 and w2, g2 joins w3 and w4, g3 joins g1 and g2, g4 joins g3 and w5 and drives the lamp",
    3: "g1 joins w1 and w2, g2 joins w3 and w4, g3 joins g1 and g2, g4 joins w5 and w6, g5 joins g3 and g4 and "
    "drives the lamp",
}[LEVEL]


class GateArrayEnv:
    """Identify the kinds of all gates of a circuit from its lamp."""

    max_turns = {1: 11, 2: 15, 3: 20}[LEVEL]

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.kinds = [rng.choice(sorted(KINDS)) for _ in range(GATES)]
        self.turn = 0
        return (
            f"A board has {WIRES} input wires w1 to w{WIRES} and {GATES} gates: {PLAN}. Each gate is one of and, "
            "or, xor, nand, nor, xnor, but the labels have worn off. Feed it a pattern, one digit 0 or 1 per wire "
            f"in order, such as \\boxed{{feed {('01' * 3)[:WIRES]}}}, and see the lamp. Then name the "
            f"gates in order, for example \\boxed{{gates {' '.join(['or'] * GATES)}}}. Naming ends the job; any "
            f"set of gates that lights the lamp for exactly the same patterns is accepted. Turns: {self.max_turns}."
        ), {}

    def lamp(self, kinds, wires):
        gate = [KINDS[k] for k in kinds]
        third = gate[2](gate[0](wires[0], wires[1]), gate[1](wires[2], wires[3]))
        if LEVEL == 1:
            return third
        if LEVEL == 2:
            return gate[3](third, wires[4])
        return gate[4](third, gate[3](wires[4], wires[5]))

    def same(self, kinds):
        every = itertools.product((0, 1), repeat=WIRES)
        return all(self.lamp(kinds, w) == self.lamp(self.kinds, w) for w in every)

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        said = re.fullmatch(r"\\boxed\{\s*(feed|gates)\s+([01a-z ]+?)\s*\}", action.strip(), re.I)
        word, rest = (said.group(1).lower(), said.group(2).lower()) if said else ("", "")
        if word == "gates" and len(rest.split()) == GATES and set(rest.split()) <= set(KINDS):
            right = self.same(rest.split())
            text = "Every pattern agrees: the board is understood." if right else "Some pattern disagrees."
            return text, float(right), True, False, {}
        if word == "feed" and re.fullmatch(f"[01]{{{WIRES}}}", rest):
            lamp = "on" if self.lamp(self.kinds, [int(c) for c in rest]) else "off"
            text = f"{rest}: lamp {lamp}. {self.max_turns - self.turn} turns left; \\boxed{{feed ...}} or \\boxed{{gates ...}}."
            return text, 0.0, False, late, {}
        text = f"Invalid. Feed {WIRES} digits of 0 and 1, or name {GATES} gates, inside \\boxed{{}}."
        return text, 0.0, False, late, {}

    def solution(self):
        feeds = ["0" * WIRES, "1" * WIRES, "01" * (WIRES // 2) + "1" * (WIRES % 2)]
        return [f"feed {w}" for w in feeds] + ["gates " + " ".join(self.kinds)]

    def hint(self):
        return "Hold all wires but two so that their gate alone decides, and vary those two."
