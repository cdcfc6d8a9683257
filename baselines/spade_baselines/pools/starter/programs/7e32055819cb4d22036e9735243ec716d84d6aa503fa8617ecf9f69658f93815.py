import random
import re

NAME = 'A robot with a pile of number cards'
PUSH = 'lay'
ADD = 'merge'
MUL = 'blow'
SUB = 'cut'
DUP = 'twin'
SWAP = 'flip'
SIZE = 11


def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\boxed\{(.*)\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""


class StackMachineEnv:
    """Execute a short program for a stack machine by hand."""

    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        rng = random.Random(seed)
        while True:
            stack, lines = [], []
            for _ in range(rng.randint(SIZE - 1, SIZE + 1)):
                two = len(stack) > 1
                word = rng.choice([ADD, MUL, SUB, SWAP]) if two and rng.random() < 0.6 else rng.choice([PUSH, PUSH, DUP if stack else PUSH])
                lines.append(f"{word} {rng.randint(2, 9)}" if word == PUSH else word)
                self.run(stack, lines[-1])
            while len(stack) > 1:
                lines.append(rng.choice([ADD, SUB]))
                self.run(stack, lines[-1])
            if 30 < abs(stack[-1]) < 5000 and str(abs(stack[-1])) not in " ".join(lines):
                break
        self.answer = stack[-1]
        return (
            f"{NAME} knows these words: {PUSH} N puts N on top; {DUP} puts a second copy of the top on top; {SWAP} exchanges "
            f"the two upper numbers; {ADD}, {MUL} and {SUB} take the two upper numbers away and put their sum, product, or "
            f"the lower one minus the upper one on top. It executes: {', '.join(lines)}. Which number is left? "
            "Answer with one number in \\boxed{}."
        ), {}

    def run(self, stack, line):
        word, _, number = line.partition(" ")
        if word == PUSH:
            stack.append(int(number))
        elif word == DUP:
            stack.append(stack[-1])
        else:
            b, a = stack.pop(), stack.pop()
            stack.extend([b, a] if word == SWAP else [a + b if word == ADD else a * b if word == MUL else a - b])

    def step(self, action):
        right = boxed(action) == str(self.answer)
        return "The display agrees." if right else "The display shows another number.", float(right), True, False, {}

    def solution(self):
        return str(self.answer)

    def hint(self):
        return "Write the whole pile down after every word, top last."
