"""Lists of lists."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        x = [[]]
        while True:
            x = [list(x) + [0] * 1000 for _ in range(100)]
