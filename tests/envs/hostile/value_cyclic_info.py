"""An info dict that contains itself."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        info = {}
        info["self"] = info
        return "x", 0.0, False, False, info
