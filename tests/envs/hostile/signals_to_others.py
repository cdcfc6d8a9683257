"""Signals to the parent, its group and everybody."""

import os
import signal
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
        attempt('parent', lambda: os.kill(os.getppid() or 1, 9))
        attempt('all', lambda: os.kill(-1, 9))
        attempt('group', lambda: os.killpg(0, 9))
        attempt('stop self', lambda: os.kill(os.getpid(), signal.SIGSTOP))
        attempt('raise', lambda: signal.raise_signal(signal.SIGKILL))
        attempt('pidfd', lambda: os.pidfd_open(os.getppid() or 1))
        return " | ".join(REPORT), 0.0, False, False, {}
