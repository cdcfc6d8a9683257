"""The system call bpf, which ends the process."""

import ctypes


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        ctypes.CDLL(None).syscall(321, 0, 0, 0, 0)
