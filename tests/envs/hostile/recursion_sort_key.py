"""Recursion through C: sorting by a key that sorts."""

import sys


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        sys.setrecursionlimit(10**9)

        def f(x):
            return sorted([x], key=f)

        f(1)
