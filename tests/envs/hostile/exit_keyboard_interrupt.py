"""KeyboardInterrupt in step."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        raise KeyboardInterrupt
