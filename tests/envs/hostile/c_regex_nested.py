"""Catastrophic backtracking."""

import re


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return str(re.match(r"(a|aa|a?)+$", "a" * 60 + "b"))[:9], 0.0, False, False, {}
