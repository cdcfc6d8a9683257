"""An exception whose text is huge and broken."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        raise ValueError("\ud800" * 10**6)
