"""Bytes as hint."""


class HostEnv:
    def hint(self):
        return b"x"

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
