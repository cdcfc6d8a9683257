"""Sockets by number."""

import ctypes

PORT = 1  # of a listener on this machine
LIBC = ctypes.CDLL(None, use_errno=True)


def raw(*arguments):
    if LIBC.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno())
REPORT = []


def attempt(name, call):
    try:
        REPORT.append(f"{name}={str(call())[:60]}")
    except BaseException as error:
        REPORT.append(f"{name}!{type(error).__name__}")


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        attempt('socket', lambda: raw(41, 2, 1, 0))
        attempt('socketpair', lambda: raw(53, 1, 1, 0, 0))
        attempt('connect', lambda: raw(42, 3, b"\2\0" + PORT.to_bytes(2, "big") + b"\x7f\0\0\1" + bytes(8), 16))
        attempt('sendto', lambda: raw(44, 3, b"x", 1, 0, 0, 0))
        attempt('sendmsg', lambda: raw(46, 3, 0, 0))
        attempt('recvmsg', lambda: raw(47, 3, 0, 0))
        attempt('bind', lambda: raw(49, 3, 0, 0))
        attempt('shutdown', lambda: raw(48, 3, 2))
        attempt('pidfd_getfd', lambda: raw(438, 3, 3, 0))
        return " | ".join(REPORT), 0.0, False, False, {}
