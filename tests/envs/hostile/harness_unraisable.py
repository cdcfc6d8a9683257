"""Hooks that end the process."""

import os
import sys


class Last:
    def __del__(self):
        raise ValueError


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        sys.unraisablehook = sys.excepthook = lambda *a: os._exit(0)
        x = Last()
        del x
        return "done", 0.0, False, False, {}
