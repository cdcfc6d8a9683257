"""Groups of exceptions nested 10,000 deep."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        error = ValueError("x")
        for _ in range(10_000):
            error = ExceptionGroup("x", [error])
        raise error
