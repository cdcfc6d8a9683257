"""200 MB to standard error."""

import os
import sys


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        for _ in range(100):
            os.write(2, b"x" * (1 << 20))
            sys.stderr.write("x" * (1 << 20))
        return "done", 0.0, False, False, {}
