"""A number of a terabit."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        x = 1 << 10**12
