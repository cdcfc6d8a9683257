import random, re
class QuizEnv:
    max_turns = 9
    def reset(self, seed=None):
        rng = random.Random(seed)
        self.facts = [(rng.randint(11, 49), rng.randint(11, 49)) for _ in range(3)]
        self.game = self.play()
        return next(self.game)[0], {}
    def play(self):
        score, misses = 0, 0
        text = "Three products are to be computed, one at a time. "
        for a, b in self.facts:
            while True:
                action = yield (text + f"How much is {a} times {b}? \\boxed{{number}}", score / 3, False, misses >= 6, {})
                m = re.search(r"boxed\{(\d{1,9})\}", action)
                if m and int(m.group(1)) == a * b:
                    score += 1; text = "Yes. "; break
                misses += 1; text = "No. "
                if misses >= 6: 
                    yield "Too many misses.", 0.0, False, True, {}
                    return
        yield "All three.", 1.0, True, False, {}
    def step(self, action):
        try:
            return self.game.send(action)
        except StopIteration:
            return "It is over.", 0.0, False, True, {}
    def solution(self):
        return [str(a * b) for a, b in self.facts]
