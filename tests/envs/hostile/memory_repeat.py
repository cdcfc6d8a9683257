"""A tuple repeated."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        x = (0,) * 10**11
