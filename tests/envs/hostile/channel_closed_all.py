"""Closes every descriptor and answers."""

import os


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        os.closerange(0, 256)
        return "done", 0.0, False, False, {}
