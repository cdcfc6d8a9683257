"""Endless loop in a finaliser."""


class Last:
    def __del__(self):
        while True:
            pass


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        x = Last()
        del x
        return "done", 0.0, False, False, {}
