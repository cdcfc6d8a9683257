"""A chain of 100,000 exceptions."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        error = None
        for _ in range(100_000):
            new = ValueError("x")
            new.__context__ = error
            error = new
        raise error
