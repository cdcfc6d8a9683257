"""Results whose parts change while they are looked at."""


class Flag(int):
    def __bool__(self):
        raise SystemExit


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "x", 0.0, Flag(1), Flag(0), {}
