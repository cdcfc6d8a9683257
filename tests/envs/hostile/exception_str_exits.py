"""An exception whose text ends the process."""

import os


class Bad(Exception):
    def __str__(self):
        os._exit(0)

    __repr__ = __format__ = __str__


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        raise Bad
