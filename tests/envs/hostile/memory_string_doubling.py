"""A text that doubles."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        x = "ab"
        while True:
            x += x
