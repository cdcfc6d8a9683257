"""Quadratic search in a long text."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return str(("a" * 200_000).count("a" * 100_000 + "b" + "a" * 100)  or [("ab" * 10**6).find("a" * 5 + "b") for _ in range(10**6)])[:9], 0.0, False, False, {}
