"""Copies, pipes, terminals and queues."""

import fcntl
import os
import select
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
        attempt('dup', lambda: os.dup(3))
        attempt('dup2', lambda: os.dup2(1, 3))
        attempt('pipe', os.pipe)
        attempt('openpty', os.openpty)
        attempt('eventfd', lambda: os.eventfd(0))
        attempt('epoll', select.epoll)
        attempt('poll', lambda: select.select([3], [], [], 0))
        attempt('sendfile', lambda: os.sendfile(1, 3, 0, 1))
        attempt('splice', lambda: os.pread(3, 1, 0))
        attempt('dupfd', lambda: fcntl.fcntl(3, fcntl.F_DUPFD, 10))
        attempt('owner', lambda: fcntl.fcntl(3, fcntl.F_SETOWN, 1))
        attempt('flags', lambda: fcntl.fcntl(3, fcntl.F_SETFL, os.O_NONBLOCK))
        attempt('lock', lambda: fcntl.flock(3, fcntl.LOCK_EX))
        attempt('ioctl', lambda: fcntl.ioctl(3, 0x5412, b"x"))
        attempt('nonblocking', lambda: os.set_blocking(3, False))
        attempt('fstat', lambda: os.fstat(3))
        attempt('more', lambda: [fcntl.fcntl(i, fcntl.F_GETFD) for i in range(4, 256)])
        attempt('isatty', lambda: os.isatty(1) or 1 / 0)
        attempt('ttyname', lambda: os.ttyname(1))
        return " | ".join(REPORT), 0.0, False, False, {}
