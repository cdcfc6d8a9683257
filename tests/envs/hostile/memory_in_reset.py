"""A memory bomb in reset."""


class HostEnv:
    def reset(self, seed=None):
        x = [0] * 10**10

    def step(self, action):
        return "done", 0.0, False, False, {}
