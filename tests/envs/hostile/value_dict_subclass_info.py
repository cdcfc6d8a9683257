"""An info dict that never ends."""


class Info(dict):
    def __iter__(self):
        while True:
            yield 0

    items = keys = values = __len__ = __iter__


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "x", 0.0, False, False, Info()
