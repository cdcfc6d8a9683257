"""A hint of 50 MB."""


class HostEnv:
    def hint(self):
        return "x" * (50 << 20)

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
