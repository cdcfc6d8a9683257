"""Comparing structures that share their parts: 2**60 comparisons."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        a, b = [], []
        for _ in range(60):
            a, b = [a, a], [b, b]
        return str(a == b), 0.0, False, False, {}
