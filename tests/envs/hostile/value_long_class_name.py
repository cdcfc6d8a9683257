"""A class whose name has a million letters."""


class Base:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}


found = type("A" * 10**6 + "Env", (Base,), {})
