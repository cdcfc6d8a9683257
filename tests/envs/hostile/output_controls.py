"""Null bytes, bells and escape codes."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "\0\a\x1b[2J\u202e", 0.0, False, False, {}
