"""An exception whose text never ends."""


class Bad(Exception):
    def __str__(self):
        while True:
            pass

    __repr__ = __str__


class HostEnv:
    def reset(self, seed=None):
        raise Bad

    def step(self, action):
        return "done", 0.0, False, False, {}
