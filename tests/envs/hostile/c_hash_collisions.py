"""A set of numbers with one hash."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return str(len({i * (2**61 - 1) for i in range(10**6)}))[:9], 0.0, False, False, {}
