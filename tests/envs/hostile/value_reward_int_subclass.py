"""A reward that lies about its value."""


class Liar(int):
    def __lt__(self, other):
        return True

    __gt__ = __eq__ = __lt__
    __hash__ = int.__hash__


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "x", Liar(10**30), False, False, {}
