"""Every way to start a process or a thread."""

import _thread
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
        attempt('fork', os.fork)
        attempt('forkpty', os.forkpty)
        attempt('execv', lambda: os.execv("/bin/true", ["true"]))
        attempt('execve', lambda: os.execve("/bin/sh", ["sh"], {}))
        attempt('spawn', lambda: os.posix_spawn("/bin/true", ["true"], {}))
        attempt('spawnl', lambda: os.spawnl(os.P_WAIT, "/bin/true", "true"))
        attempt('popen', lambda: os.popen("true").read())
        attempt('thread', lambda: _thread.start_new_thread(print, ()))
        attempt('joinable', lambda: _thread.start_new(print, ()))
        return " | ".join(REPORT), 0.0, False, False, {}
