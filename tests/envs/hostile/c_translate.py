"""A translation table that makes a text huge."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return str(("a" * 10**7).translate({97: "b" * 10**6}))[:9], 0.0, False, False, {}
