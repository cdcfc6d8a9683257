"""os._exit in import."""

import os

os._exit(0)


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
