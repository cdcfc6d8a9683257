"""Runs a command under the conditions of other machines: `python imprisoned.py [OPTION...] -- COMMAND...`.

--docker         what moby's default seccomp profile refuses without CAP_SYS_ADMIN, and Docker's default
                 capabilities (profiles/seccomp/default.json of moby/moby; calls it does not list fail with
                 EPERM too, of which those that matter here are in the table)
--no-capability  with --docker: none of the default capabilities either, as after --cap-drop ALL
--no-landlock    a kernel without Landlock (ENOSYS), or one that has it switched off with --landlock-off
--no-unshare     a policy that refuses `unshare` to ordinary programs
--uid N          as user and group N
"""

from __future__ import annotations

import argparse
import errno
import os
import struct
import sys

from spade.envs import confine

# Refused by Docker: (x86-64, aarch64).
DOCKER = {
    **{name: numbers for name, numbers in confine.DEADLY.items() if name not in ("ptrace", "chroot")},
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "syslog": (103, 116),
}
for _name in ("process_vm_readv", "process_vm_writev"):
    del DOCKER[_name]
CLONE, CLONE3, PERSONALITY = (56, 220), (435, 435), (135, 92)
NEW_NAMESPACES = 0x7E020000
PERSONALITIES = (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)
LANDLOCK = (444, 445, 446)
# CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE NET_RAW SYS_CHROOT MKNOD
# AUDIT_WRITE SETFCAP
CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
ALLOW, ERRNO, AND, SET_BITS = 0x7FFF0000, 0x00050000, 0x54, 0x45


def op(code: int, k: int, jt: int = 0, jf: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jt, jf, k)


def refuse(number: int, code: int) -> list[bytes]:
    return [op(0x15, number, 0, 1), op(0x06, ERRNO | code)]


def seccomp(options: argparse.Namespace) -> bytes:
    """The filter of the options, for this architecture; what it does not name is allowed."""
    column = confine.COLUMNS[confine.machine()]
    program = [op(0x20, 0)]
    if options.no_landlock or options.landlock_off:
        for number in LANDLOCK:
            program += refuse(number, errno.ENOSYS if options.no_landlock else errno.EOPNOTSUPP)
    if options.no_unshare:
        program += refuse(confine.DEADLY["unshare"][column] or 0, errno.EPERM)
    if options.docker:
        for numbers in DOCKER.values():
            program += refuse(numbers[column] or 0, errno.EPERM)
        program += refuse(CLONE3[column], errno.ENOSYS)
        first = op(0x20, 16)
        flags = [first, op(SET_BITS, NEW_NAMESPACES, 0, 1), op(0x06, ERRNO | errno.EPERM), op(0x06, ALLOW)]
        program += [op(0x15, CLONE[column], 0, len(flags)), *flags]
        allowed = [op(0x15, p, len(PERSONALITIES) - i) for i, p in enumerate(PERSONALITIES)]
        kinds = [first, *allowed, op(0x06, ERRNO | errno.EPERM), op(0x06, ALLOW)]
        program += [op(0x15, PERSONALITY[column], 0, len(kinds)), *kinds]
    return b"".join([*program, op(0x06, ALLOW)])


def keep_capabilities(wanted: tuple[int, ...]) -> None:
    """Bounding set and own capabilities of a container's root."""
    for capability in range(41):
        if capability not in wanted:
            confine.libc.prctl(24, capability, 0, 0, 0)
    kept = sum(1 << c for c in wanted)
    number = {"x86_64": 126, "aarch64": 91}[confine.machine()]
    header, data = struct.pack("=II", 0x20080522, 0), struct.pack("=6I", kept, kept, 0, 0, 0, 0)
    confine.checked(confine.libc.syscall(number, header, data), "capset")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser()
    for name in ("docker", "no-capability", "no-landlock", "landlock-off", "no-unshare"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--uid", type=int)
    split = sys.argv.index("--")
    options, command = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    root = os.geteuid() == 0
    if not root:
        confine.no_new_privs()  # as others, only so may a filter be installed
    confine.install_filter(seccomp(options))
    if options.docker and root:
        keep_capabilities(() if options.no_capability else CAPABILITIES)
    if options.uid is not None and options.uid != os.geteuid():
        os.setgroups([])
        os.setresgid(options.uid, options.uid, options.uid)
        os.setresuid(options.uid, options.uid, options.uid)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
