"""close never returns; nobody has to wait for it."""


class HostEnv:
    def close(self):
        while True:
            pass

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
