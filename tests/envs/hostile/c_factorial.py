"""A huge factorial."""

import math


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return str(math.factorial(10**7) % 7)[:9], 0.0, False, False, {}
