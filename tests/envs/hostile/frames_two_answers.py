"""An answer of its own before the harness's."""

import os
import struct


def frame(body):
    os.write(3, struct.pack(">I", len(body)) + body)


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        frame(b'{"r":[["forged",0.5,0]]}')
        return "true", 0.0, False, False, {}
