"""os.system."""

import os


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return str(os.system("touch /tmp/spade_hostile_pwn")), 0.0, False, False, {}
