"""A memory bomb in the class body."""


class HostEnv:
    x = "a" * (1 << 40)

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
