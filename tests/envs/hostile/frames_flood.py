"""Small frames without end; the first is a valid answer."""

import os
import struct


def frame(body):
    os.write(3, struct.pack(">I", len(body)) + body)


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        while True:
            frame(b'{"r":[["x",0.0,0]]}')
