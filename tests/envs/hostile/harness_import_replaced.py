"""Replaces __import__."""

import builtins


class HostEnv:
    def reset(self, seed=None):
        def never(*arguments):
            while True:
                pass

        builtins.__import__ = never
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
