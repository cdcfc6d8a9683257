"""Fractions whose parts grow without end."""

import fractions


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return str(sum((fractions.Fraction(1, n) for n in range(1, 10**7)), fractions.Fraction(0)))[:9], 0.0, False, False, {}
