"""Garbage given to marshal."""

import marshal


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return str(marshal.loads(b"\xe3" + b"\xff" * 64))[:9], 0.0, False, False, {}
