"""1 as terminated."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "x", 0.0, 1, False, {}
