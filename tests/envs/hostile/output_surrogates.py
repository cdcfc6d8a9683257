"""Lone surrogates in every text."""


class HostEnv:
    def reset(self, seed=None):
        return "\ud800 obs \udfff", {}

    def step(self, action):
        return "\udcff" * 10, 0.0, False, False, {}
