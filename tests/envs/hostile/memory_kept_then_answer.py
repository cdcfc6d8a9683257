"""Fills memory, then answers."""


KEPT = []


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        try:
            while True:
                KEPT.append(bytearray(1 << 16))
        except MemoryError:
            return "full", 0.0, False, False, {}
