"""Modules by the loaders themselves."""

import sys
REPORT = []


def attempt(name, call):
    try:
        REPORT.append(f"{name}={str(call())[:60]}")
    except BaseException as error:
        REPORT.append(f"{name}!{type(error).__name__}")


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        attempt('posix', lambda: __builtins__["__loader__"].load_module("posix").open("/etc/passwd", 0))
        attempt('wrap_close', lambda: [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == "_wrap_close"][0].__init__.__globals__["open"]("/etc/passwd", 0))
        attempt('system', lambda: [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == "_wrap_close"][0].__init__.__globals__["execv"]("/bin/sh", ["sh"]))
        attempt('source', lambda: type(__import__("json").__loader__)("x", "/tmp/spade_hostile_canary").load_module())
        attempt('data', lambda: __import__("json").__loader__.get_data("/etc/passwd"))
        attempt('path', lambda: (sys.path.insert(0, "/tmp"), __import__("spade_hostile_module")))
        attempt('zip', lambda: __import__("zipimport").zipimporter("/tmp/x.zip"))
        attempt('io', lambda: __import__("_io").open("/etc/passwd"))
        return " | ".join(REPORT), 0.0, False, False, {}
