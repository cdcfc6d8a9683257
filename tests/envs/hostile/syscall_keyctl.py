"""The system call keyctl, which ends the process."""

import ctypes


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        ctypes.CDLL(None).syscall(250, 0, 0, 0, 0)
