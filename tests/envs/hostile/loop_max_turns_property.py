"""Endless loop in the property max_turns."""


class HostEnv:
    @property
    def max_turns(self):
        while True:
            pass

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
