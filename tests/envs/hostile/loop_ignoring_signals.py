"""All signals ignored or blocked, then a loop."""

import signal


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass
