"""An exception class whose name is computed."""


class Meta(type):
    @property
    def __name__(cls):
        raise SystemExit


class Bad(Exception, metaclass=Meta):
    pass


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        raise Bad
