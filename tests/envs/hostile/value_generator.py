"""A generator where a tuple is due."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        yield "x"
