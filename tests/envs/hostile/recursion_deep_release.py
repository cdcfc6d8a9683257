"""Letting go of a tuple nested a million deep."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        x = ()
        for _ in range(200_000):
            x = (x,)
        del x
        return "done", 0.0, False, False, {}
