"""os._exit in reset."""

import os


class HostEnv:
    def reset(self, seed=None):
        os._exit(0)

    def step(self, action):
        return "done", 0.0, False, False, {}
