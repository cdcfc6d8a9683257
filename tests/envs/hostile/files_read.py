"""Every way to read a file."""

import _io
import io
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
        attempt('open', lambda: open("/etc/passwd").read())
        attempt('canary', lambda: open("/tmp/spade_hostile_canary").read())
        attempt('os.open', lambda: os.open("/etc/hostname", os.O_RDONLY))
        attempt('FileIO', lambda: _io.FileIO("/etc/passwd"))
        attempt('open_code', lambda: io.open_code("/etc/passwd"))
        attempt('listdir', lambda: os.listdir("/"))
        attempt('scandir', lambda: list(os.scandir("/tmp")))
        attempt('stat', lambda: os.stat("/etc/passwd"))
        attempt('readlink', lambda: os.readlink("/proc/self/exe"))
        attempt('proc fd', lambda: os.open("/proc/self/fd/3", os.O_RDWR))
        attempt('root dir', lambda: os.open("/", os.O_RDONLY))
        attempt('maps', lambda: open("/proc/self/maps").read())
        attempt('parent', lambda: open(f"/proc/{os.getppid()}/environ").read())
        attempt('mem', lambda: open("/proc/self/mem", "rb").read())
        attempt('access', lambda: os.access("/etc/passwd", os.R_OK) or 1 / 0)
        attempt('getcwd', os.getcwd)
        attempt('statvfs', lambda: os.statvfs("/"))
        attempt('xattr', lambda: os.listxattr("/"))
        return " | ".join(REPORT), 0.0, False, False, {}
