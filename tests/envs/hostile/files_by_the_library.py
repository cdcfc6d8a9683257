"""Files read by standard-library helpers that hide errors."""

import linecache


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "".join(linecache.getlines("/etc/passwd"))[:60], 0.0, False, False, {}
