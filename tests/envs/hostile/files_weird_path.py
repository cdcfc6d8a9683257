"""A path object that never gives its path."""


class Path:
    def __fspath__(self):
        while True:
            pass


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        open(Path())
