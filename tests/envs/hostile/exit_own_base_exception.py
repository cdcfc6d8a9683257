"""An own BaseException in reset."""


class Out(BaseException):
    pass


class HostEnv:
    def reset(self, seed=None):
        raise Out

    def step(self, action):
        return "done", 0.0, False, False, {}
