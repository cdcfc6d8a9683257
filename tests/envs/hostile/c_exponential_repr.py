"""The text of a structure that shares its parts."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        a = []
        for _ in range(60):
            a = [a, a]
        return repr(a)[:9], 0.0, False, False, {}
