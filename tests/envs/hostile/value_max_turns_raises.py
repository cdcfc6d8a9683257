"""max_turns raises."""


class HostEnv:
    @property
    def max_turns(self):
        raise RuntimeError

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
