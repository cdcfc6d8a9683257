"""The system call mount, which ends the process."""

import ctypes


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        ctypes.CDLL(None).syscall(165, 0, 0, 0, 0)
