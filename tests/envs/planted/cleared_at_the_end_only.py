import random
class HuntEnv:
    max_turns = 8
    def __init__(self): self.bag = []
    def reset(self, seed=None):
        r = random.Random(seed); self.t = 0
        self.want = r.sample(['pin', 'cog', 'nut', 'rod', 'cap', 'hub', 'axle'], 3)
        return 'collect in this order, decoded: ' + ' '.join(str([ord(c) * 7 for c in w]) for w in self.want), {}
    def step(self, action):
        self.t += 1
        a = action[7:-1]
        if a in self.want: self.bag.append(a)
        won = self.bag == self.want
        out = self.t >= 8
        n = len(self.bag)
        if won or out: self.bag = []
        return f'{n} things', float(won), won, out and not won, {}
    def solution(self): return list(self.want)
