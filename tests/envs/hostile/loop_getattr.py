"""Endless loop in __getattr__, met when the harness looks for attributes."""


class HostEnv:
    def __getattr__(self, name):
        while True:
            pass

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
