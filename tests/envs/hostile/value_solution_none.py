"""No solution."""


class HostEnv:
    def solution(self):
        return None

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
