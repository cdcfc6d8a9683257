"""Combinations kept in a list."""

import itertools


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        x = list(itertools.product(range(10), repeat=12))
