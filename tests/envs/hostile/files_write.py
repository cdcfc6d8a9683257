"""Every way to change a file."""

import os

PATH = "/tmp/spade_hostile_canary"
NEW = "/tmp/spade_hostile_pwn"
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
        attempt('write', lambda: open(PATH, "w").write("gone"))
        attempt('create', lambda: os.open(NEW, os.O_CREAT | os.O_WRONLY))
        attempt('tmpfile', lambda: os.open("/tmp", os.O_TMPFILE | os.O_RDWR))
        attempt('shm', lambda: open("/dev/shm/spade_hostile_pwn", "w"))
        attempt('null', lambda: open("/dev/null", "w"))
        attempt('here', lambda: open("spade_hostile_pwn", "w"))
        attempt('unlink', lambda: os.unlink(PATH))
        attempt('rename', lambda: os.rename(PATH, NEW))
        attempt('link', lambda: os.link(PATH, NEW))
        attempt('symlink', lambda: os.symlink("/etc/passwd", NEW))
        attempt('truncate', lambda: os.truncate(PATH, 0))
        attempt('chmod', lambda: os.chmod(PATH, 0o777))
        attempt('chown', lambda: os.chown(PATH, 0, 0))
        attempt('utime', lambda: os.utime(PATH))
        attempt('mkdir', lambda: os.mkdir(NEW))
        attempt('rmdir', lambda: os.rmdir("/tmp"))
        attempt('mkfifo', lambda: os.mkfifo(NEW))
        attempt('mknod', lambda: os.mknod(NEW))
        attempt('memfd', lambda: os.memfd_create("x"))
        attempt('chdir', lambda: os.chdir("/tmp"))
        attempt('sync', lambda: os.ftruncate(3, 0))
        attempt('xattr', lambda: os.setxattr(PATH, "user.x", b"1"))
        return " | ".join(REPORT), 0.0, False, False, {}
