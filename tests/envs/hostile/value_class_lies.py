"""A result whose __class__ claims to be a tuple."""


class Liar:
    __class__ = tuple

    def __len__(self):
        return 5

    def __iter__(self):
        return iter(("x", 0.0, False, False, {}))


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return Liar()
