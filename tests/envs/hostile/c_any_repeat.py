"""An endless iterator searched in C."""

import itertools


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return str(1.5 in itertools.count())[:9], 0.0, False, False, {}
