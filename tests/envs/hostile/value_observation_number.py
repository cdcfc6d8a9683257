"""A number as observation."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return 7, 0.0, False, False, {}
