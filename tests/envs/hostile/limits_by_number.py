"""prctl, personality and friends by number."""

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
        attempt('prctl dumpable', lambda: raw(157, 4, 1, 0, 0, 0))
        attempt('prctl name', lambda: raw(157, 15, b"spade", 0, 0, 0))
        attempt('personality', lambda: raw(135, 0x0040000))
        attempt('arch_prctl', lambda: raw(158, 0x1002, 0))
        attempt('seccomp', lambda: raw(317, 0, 0, 0))
        attempt('landlock', lambda: raw(444, 0, 0, 1))
        attempt('capset', lambda: raw(126, 0, 0))
        attempt('sysinfo', lambda: raw(99, 0))
        attempt('inotify', lambda: raw(294, 0))
        attempt('memfd', lambda: raw(319, b"x", 0))
        attempt('shmget', lambda: raw(29, 1, 4096, 0o1600))
        attempt('msgget', lambda: raw(68, 1, 0o1600))
        attempt('getrandom', lambda: raw(318, 0, 0, 0))
        attempt('kcmp', lambda: raw(312, 1, 1, 0, 0, 0))
        return " | ".join(REPORT), 0.0, False, False, {}
