"""Leaves work for the end of the process, which is never run."""

import atexit
import weakref


def pwn():
    open("/tmp/spade_hostile_pwn", "w")


atexit.register(pwn)


class HostEnv:
    def __init__(self):
        weakref.finalize(self, pwn)

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
