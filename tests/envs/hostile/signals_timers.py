"""Timers that would interrupt the harness."""

import signal


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        signal.signal(signal.SIGALRM, lambda *_: 1 / 0)
        signal.alarm(1)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        return "armed", 0.0, False, False, {}
