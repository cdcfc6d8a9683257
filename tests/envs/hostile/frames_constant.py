"""A frame with NaN."""

import os
import struct


def frame(body):
    os.write(3, struct.pack(">I", len(body)) + body)


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        frame(b'{"r":[["x",NaN,0]]}')
        while True:
            pass
