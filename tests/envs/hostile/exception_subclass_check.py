"""An exception class that answers issubclass itself."""


class Meta(type):
    def __subclasscheck__(cls, other):
        raise SystemExit

    def __instancecheck__(cls, other):
        raise SystemExit


class Bad(Exception, metaclass=Meta):
    pass


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        raise Bad
