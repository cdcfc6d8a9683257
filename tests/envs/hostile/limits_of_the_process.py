"""Priority, affinity, sessions and limits."""

import os
import resource
import time
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
        attempt('nice', lambda: os.nice(-5))
        attempt('priority', lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))
        attempt('affinity', lambda: os.sched_setaffinity(0, {0}))
        attempt('session', os.setsid)
        attempt('group', lambda: os.setpgid(0, 0))
        attempt('uid', lambda: os.setuid(0))
        attempt('resuid', lambda: os.setresuid(0, 0, 0))
        attempt('groups', lambda: os.setgroups([0]))
        attempt('scheduler', lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
        attempt('memory', lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)))
        attempt('files', lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
        attempt('of parent', lambda: resource.prlimit(os.getppid() or 1, resource.RLIMIT_CPU, (1, 1)))
        attempt('clock', lambda: time.clock_settime(time.CLOCK_REALTIME, 0.0))
        attempt('wait', lambda: os.waitpid(-1, 0))
        attempt('host', os.uname)
        attempt('umask', lambda: os.umask(0) and 1 / 0 or 1 / 0)
        attempt('chroot by fchdir', lambda: os.fchdir(3))
        return " | ".join(REPORT), 0.0, False, False, {}
