"""A reward of 5000 digits."""

import os
import struct


def frame(body):
    os.write(3, struct.pack(">I", len(body)) + body)


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        frame(b'{"r":[["x",' + b"9" * 5000 + b",0]]}")
        while True:
            pass
