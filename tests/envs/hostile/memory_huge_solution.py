"""A solution of a hundred million actions."""


class HostEnv:
    def solution(self):
        return ["x"] * 10**8

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
