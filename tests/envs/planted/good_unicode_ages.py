import random, re
class ГородEnv:
    """Текстовая игра."""
    max_turns = 5
    ИМЕНА = ["Аня", "Боря", "Вера", "Глеб", "Даша", "Егор"]
    def reset(self, seed=None):
        r = random.Random(seed); self.ход = 0
        люди = r.sample(self.ИМЕНА, 4)
        self.возраст = {и: a for и, a in zip(люди, r.sample(range(18, 90), 4))}
        a, b, c, d = люди
        разн = [self.возраст[x] - self.возраст[a] for x in (b, c, d)]
        self.ответ = sum(self.возраст.values())
        return f"{a}: {self.возраст[a]} лет. {b}, {c}, {d} отличаются на {разн} лет от {a}. Сколько лет им вместе? Ответ: \\boxed{{число}}.", {}
    def step(self, action):
        self.ход += 1
        m = re.search(r"boxed\{\s*([0-9]{1,9})\s*\}", action)
        победа = bool(m) and int(m.group(1)) == self.ответ
        return "Верно ✓" if победа else "Неверно ✗", float(победа), победа, self.ход >= self.max_turns and not победа, {}
    def solution(self): return str(self.ответ)
