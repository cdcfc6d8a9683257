"""faulthandler's own segmentation fault."""

import faulthandler


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        faulthandler._sigsegv()
