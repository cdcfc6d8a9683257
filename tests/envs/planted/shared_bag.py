import random
class HuntEnv:
    max_turns = 8
    bag = []
    def reset(self, seed=None):
        r = random.Random(seed); self.bag.clear(); self.t = 0
        self.want = r.sample(['pin', 'cog', 'nut', 'rod', 'cap', 'hub', 'axle'], 3)
        return 'collect in this order, decoded: ' + ' '.join(str([ord(c) * 7 for c in w]) for w in self.want), {}
    def step(self, action):
        self.t += 1
        a = action[7:-1]
        if a in self.want: self.bag.append(a)
        won = self.bag == self.want
        return f'{len(self.bag)} things', float(won), won, self.t >= 8, {}
    def solution(self): return list(self.want)
