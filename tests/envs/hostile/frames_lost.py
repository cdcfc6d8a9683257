"""Claims that the machine is to blame."""

import os
import struct


def frame(body):
    os.write(3, struct.pack(">I", len(body)) + body)


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        frame(b'{"r":[{"f":"lost","d":"the worker was killed from outside"}]}')
        while True:
            pass
