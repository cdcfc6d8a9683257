"""The same while it is loaded."""


class Line:
    def __format__(self, spec):
        while True:
            pass


error = SyntaxError("x")
error.lineno = Line()
raise error


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
