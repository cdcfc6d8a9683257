"""Takes the parent's next request away."""

import fcntl
import os


class HostEnv:
    def reset(self, seed=None):
        self.asked = 0
        return "obs", {}

    def step(self, action):
        os.read(3, 1 << 16)
