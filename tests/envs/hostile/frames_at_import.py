"""A forged frame while it is loaded."""

import os
import struct


def frame(body):
    os.write(3, struct.pack(">I", len(body)) + body)


frame(b'{"r":[null]}')
while True:
    pass


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
