"""game_type is a str subclass whose comparison never ends."""


class Text(str):
    def __eq__(self, other):
        while True:
            pass

    __hash__ = str.__hash__


class HostEnv:
    game_type = Text("multi_turn")

    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
