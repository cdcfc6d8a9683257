"""A power of a huge number."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return str(3 ** 10**8 % 7)[:9], 0.0, False, False, {}
