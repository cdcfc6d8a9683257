"""Waits for a lock for years, and swallows whatever comes."""

import _thread


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        lock = _thread.allocate_lock()
        lock.acquire()
        while True:
            try:
                lock.acquire(timeout=10**6)
            except BaseException:
                pass
