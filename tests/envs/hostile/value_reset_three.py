"""reset returns three values."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}, 1

    def step(self, action):
        return "done", 0.0, False, False, {}
