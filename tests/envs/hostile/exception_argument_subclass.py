"""An exception whose argument is a text that never ends."""


class Text(str):
    def __str__(self):
        while True:
            pass

    __format__ = __getitem__ = __len__ = __str__


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        raise ValueError(Text("x"))
