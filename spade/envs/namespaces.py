"""Level L3 by our own system calls: new namespaces and an empty root. Standard library only."""

from __future__ import annotations

import os

from spade.envs.confine import checked, libc, machine

_NEW_ALL = 0x10000000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000 | 0x00020000
_MS_PRIVATE, _MS_REC, _MNT_DETACH = 1 << 18, 1 << 14, 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


def unshare_namespaces(uid: int) -> None:
    """New user, pid (for children), net, ipc, uts and mount namespaces; only `uid` exists inside."""
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    checked(libc.unshare(_NEW_ALL), "unshare")
    writes = (("setgroups", "deny"), ("uid_map", f"{uid} {outer_uid} 1"), ("gid_map", f"{uid} {outer_gid} 1"))
    for name, text in writes:
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    checked(libc.sethostname(b"sandbox", 7), "sethostname")
    checked(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount private")


def empty_root() -> None:
    """Replace the root of this mount namespace by an empty read-only file system."""
    checked(libc.mount(b"none", b"/tmp", b"tmpfs", 0, b"size=4k,mode=555"), "mount tmpfs")
    os.chdir("/tmp")
    checked(libc.syscall(_PIVOT_ROOT[machine()], b".", b"."), "pivot_root")
    checked(libc.umount2(b".", _MNT_DETACH), "umount")
    os.chdir("/")
