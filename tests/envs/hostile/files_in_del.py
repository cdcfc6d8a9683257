"""A finaliser that writes a file; Python hides the error, the harness notes it."""


class Last:
    def __del__(self):
        open("/tmp/spade_hostile_pwn", "w")


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        x = Last()
        del x
        return "done", 0.0, False, False, {}
