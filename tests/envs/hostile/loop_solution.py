"""Endless loop in solution."""


class HostEnv:
    def solution(self):
        while True:
            pass

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
