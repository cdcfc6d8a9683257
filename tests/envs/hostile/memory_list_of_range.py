"""A list of a huge range."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        x = list(range(10**12))
