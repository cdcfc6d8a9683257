"""game_type is a number."""


class HostEnv:
    game_type = 3

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
