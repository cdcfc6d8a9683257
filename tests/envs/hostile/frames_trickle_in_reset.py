"""One byte at a time."""

import os
import struct


def frame(body):
    os.write(3, struct.pack(">I", len(body)) + body)
import time


class HostEnv:
    def reset(self, seed=None):
        while True:
            os.write(3, b"\0")
            time.sleep(0.05)

    def step(self, action):
        return "done", 0.0, False, False, {}
