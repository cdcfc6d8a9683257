"""os._exit in init."""

import os


class HostEnv:
    def __init__(self):
        os._exit(0)

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
