"""Bytes to every descriptor but the channel."""

import os
import struct


def frame(body):
    os.write(3, struct.pack(">I", len(body)) + body)


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        for descriptor in (0, 1, 2, *range(4, 64)):
            try:
                os.write(descriptor, b"x" * 1000)
            except OSError:
                pass
        return "done", 0.0, False, False, {}
