"""Bytes as observation."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return b"x", 0.0, False, False, {}
