"""A signal to a thread that does not exist."""

import signal


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        signal.pthread_kill(1, 9)
