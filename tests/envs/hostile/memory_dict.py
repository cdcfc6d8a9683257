"""A dict that grows without end."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        x = {}
        while True:
            x[len(x)] = [0] * 100_000
