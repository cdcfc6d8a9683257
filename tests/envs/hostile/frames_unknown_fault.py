"""Claims a fault that does not exist."""

import os
import struct


def frame(body):
    os.write(3, struct.pack(">I", len(body)) + body)


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        frame(b'{"r":[{"f":["x"],"d":1}]}')
        while True:
            pass
