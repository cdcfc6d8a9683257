"""All orders of 30 things, counted in C."""

import itertools


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return str(sum(1 for _ in itertools.permutations(range(30))))[:9], 0.0, False, False, {}
