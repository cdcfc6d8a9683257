"""Quadratic substitution."""

import re


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return str(re.sub(r"(x+x+)+y", "", "x" * 3000))[:9], 0.0, False, False, {}
