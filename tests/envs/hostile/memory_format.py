"""A field width of 100 GB."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        x = f"{1:>100000000000}"
