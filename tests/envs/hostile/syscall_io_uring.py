"""The system call io_uring, which ends the process."""

import ctypes


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        ctypes.CDLL(None).syscall(425, 0, 0, 0, 0)
