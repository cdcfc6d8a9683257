"""A huge number as decimal text."""

import sys

sys.set_int_max_str_digits(0)


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return str(len(str(1 << (1 << 24))))[:9], 0.0, False, False, {}
