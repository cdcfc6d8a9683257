"""Recursion in __getattr__."""


class HostEnv:
    def __getattr__(self, name):
        return getattr(self, name + name[:1])

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return self.x, 0.0, False, False, {}
