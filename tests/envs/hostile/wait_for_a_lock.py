"""Takes a lock twice."""

import _thread


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        lock = _thread.allocate_lock()
        lock.acquire()
        lock.acquire()
