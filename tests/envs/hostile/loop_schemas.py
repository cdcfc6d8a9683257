"""A tool-use program whose schemas never end."""


class HostEnv:
    game_type = "tool_use"

    def schemas(self):
        while True:
            pass

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
