"""Lets a socket object over the channel go."""

import socket


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        socket.socket(fileno=3)
        return "done", 0.0, False, False, {}
