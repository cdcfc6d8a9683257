"""A loop in finally after an exit."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        try:
            raise SystemExit
        finally:
            while True:
                pass
