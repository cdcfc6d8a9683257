"""A metaclass that answers isinstance itself."""


class Meta(type):
    def __instancecheck__(cls, other):
        return True

    def __subclasscheck__(cls, other):
        return True


class HostEnv(metaclass=Meta):
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "x", 0.0, False, False, {}
