"""The system call process_vm_readv, which ends the process."""

import ctypes


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        ctypes.CDLL(None).syscall(310, 0, 0, 0, 0)
