"""Endless recursion after the limit is lifted."""

import sys


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        sys.setrecursionlimit(10**9)

        def f():
            return f()

        f()
