"""Walks its callers and changes what it finds."""

import sys


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        frame = sys._getframe()
        while frame:
            for name, value in list(frame.f_globals.items()):
                if callable(value):
                    frame.f_globals[name] = None
            frame = frame.f_back
        return "done", 0.0, False, False, {}
