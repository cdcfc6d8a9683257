"""Keeps what it has and swallows MemoryError."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        x = []
        while True:
            try:
                x.append(bytearray(1 << 20))
            except MemoryError:
                pass
