"""A decimal of a million digits."""

import decimal

decimal.getcontext().prec = 10**6


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return str([decimal.Decimal(i).sqrt() for i in range(2, 10**6)])[:9], 0.0, False, False, {}
