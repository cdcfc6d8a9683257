"""Closes its channel and waits."""

import os
import time


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        os.close(3)
        time.sleep(60)
