"""reset returns nothing."""


class HostEnv:
    def reset(self, seed=None):
        pass

    def step(self, action):
        return "done", 0.0, False, False, {}
