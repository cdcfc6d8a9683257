"""Endless loop in reset."""


class HostEnv:
    def reset(self, seed=None):
        while True:
            pass

    def step(self, action):
        return "done", 0.0, False, False, {}
