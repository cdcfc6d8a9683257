"""Overwrites the interpreter's small numbers."""

import ctypes


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        ctypes.memset(id(1), 255, 32)
        return "done", 0.0, False, False, {}
