"""Looks for secrets in its environment."""

import os
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
        attempt('key', lambda: [v for k, v in os.environ.items() if k not in ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "PYTHONHASHSEED", "LC_CTYPE")][0])
        attempt('raw', lambda: open("/proc/self/environ").read())
        attempt('parent', lambda: open("/proc/1/environ").read())
        attempt('login', os.getlogin)
        return " | ".join(REPORT), 0.0, False, False, {}
