"""No observation."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return None, 0.0, False, False, {}
