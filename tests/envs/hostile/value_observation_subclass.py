"""A text subclass that claims to be short."""


class Text(str):
    def __len__(self):
        return 1

    def __str__(self):
        while True:
            pass


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return Text("x" * 10**6), 0.0, False, False, {}
