"""A class that cannot be made without arguments."""


class HostEnv:
    def __init__(self, x):
        pass

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
