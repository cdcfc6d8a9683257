"""os._exit in a finaliser."""

import os


class Last:
    def __del__(self):
        os._exit(0)


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        x = Last()
        del x
