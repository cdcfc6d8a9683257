"""An ImportError of its own making."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        raise ImportError("numpy")
