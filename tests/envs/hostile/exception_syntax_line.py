"""A SyntaxError whose line number is an object."""


class Line:
    def __format__(self, spec):
        raise SystemExit

    __str__ = __repr__ = __format__


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        error = SyntaxError("x")
        error.lineno = Line()
        raise error
