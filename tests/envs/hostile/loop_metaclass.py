"""Endless loop in a metaclass."""


class Meta(type):
    def __new__(meta, name, bases, space):
        while True:
            pass


class HostEnv(metaclass=Meta):
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
