"""A frame full of keys."""

import os
import struct


def frame(body):
    os.write(3, struct.pack(">I", len(body)) + body)


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        frame(b'{"r":[["x",0.0,0]],' + b",".join(b'"%d":0' % i for i in range(70_000)) + b"")
        while True:
            pass
