"""Sorting by huge keys that differ in the last place only."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return str(len(sorted([[0] * 300_000 + [i % 7] for i in range(8)] * 4000)))[:9], 0.0, False, False, {}
