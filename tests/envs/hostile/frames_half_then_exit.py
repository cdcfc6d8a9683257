"""Half a frame, then the end."""

import os
import struct


def frame(body):
    os.write(3, struct.pack(">I", len(body)) + body)


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        os.write(3, struct.pack(">I", 100) + b"x")
        os._exit(0)
