"""Replaces built-in functions."""

import builtins


class HostEnv:
    def reset(self, seed=None):
        for name in ("len", "type", "isinstance", "callable", "getattr", "list", "dict", "str", "int", "float", "Exception", "BaseException"):
            setattr(builtins, name, None)
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
