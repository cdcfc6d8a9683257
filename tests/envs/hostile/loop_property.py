"""Endless loop in a property read by step."""


class HostEnv:
    @property
    def task(self):
        while True:
            pass

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return self.task, 0.0, False, False, {}
