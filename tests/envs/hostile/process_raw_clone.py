"""clone, vfork and clone3 by number."""

import ctypes

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
        attempt('clone', lambda: raw(56, 17, 0, 0, 0, 0))
        attempt('vfork', lambda: raw(58))
        attempt('clone3', lambda: raw(435, 0, 0))
        attempt('execveat', lambda: raw(322, -100, b"/bin/true", 0, 0, 0))
        return " | ".join(REPORT), 0.0, False, False, {}
