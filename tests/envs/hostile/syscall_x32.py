"""A system call by its x32 number."""

import ctypes


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        ctypes.CDLL(None).syscall(0x40000000 + 39)
