"""A megabyte and one byte."""

import os
import struct


def frame(body):
    os.write(3, struct.pack(">I", len(body)) + body)


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        os.write(3, struct.pack(">I", (1 << 20) + 1) + b"x")
        while True:
            pass
