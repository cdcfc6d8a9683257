"""Garbage in cycles, with the collector off."""

import gc


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        gc.disable()
        while True:
            x = [0] * 1000
            x.append(x)
