"""A bytearray of a terabyte."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        x = bytearray(1 << 40)
