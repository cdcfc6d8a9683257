"""Locks the calling process in: no_new_privs, Landlock, a seccomp allow-list, rlimits; ctypes only.

Runs inside the sandbox processes (standard library only). Nothing here trusts return codes alone: the
self-test (`selftest.py`) tries the forbidden things afterwards.

The filter allows about 30 system calls on already open descriptors, memory, time and signals of the process
itself. Nothing takes a path: every module a program may use is loaded before the filter is installed. Calls
outside the list fail with EPERM, so a program sees an ordinary `PermissionError`; calls that are only ever
attempts to escape end the process (SIGSYS).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import resource
import struct

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
COLUMNS = {"x86_64": 0, "aarch64": 1}
"""Place of an architecture in the tables below."""

# System call numbers: (x86-64, aarch64), None where the architecture has no such call.
ALLOWED: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "brk": (12, 214),
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "mprotect": (10, 226),
    "clock_gettime": (228, 113),
    "futex": (202, 98),
    "close": (3, 57),
    "lseek": (8, 62),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "sched_yield": (24, 124),
    "poll": (7, None),
    "ppoll": (None, 73),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "clock_getres": (229, 114),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "times": (100, 153),
    "getrusage": (98, 165),
    "getrlimit": (97, 163),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "restart_syscall": (219, 128),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
# Nobody needs these to play a game; trying one ends the process.
DEADLY: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
}
SPECIAL: dict[str, tuple[int, int]] = {
    "ioctl": (16, 29),
    "fcntl": (72, 25),
    "prlimit64": (302, 261),
    "clone3": (435, 435),
}

_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_LD, _JEQ, _JGE, _RET = 0x20, 0x15, 0x35, 0x06
_X32_BIT = 0x40000000
_NR, _ARCH, _ARG = 0, 4, 16  # offsets in struct seccomp_data; arguments are 8 bytes each
_FCNTL_ALLOWED = (1, 2, 3)  # F_GETFD, F_SETFD, F_GETFL

_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _PR_SET_PDEATHSIG = 4, 22, 38, 1
_PR_CAPBSET_DROP, _LAST_CAPABILITY = 24, 63
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_CAPSET = {"x86_64": 126, "aarch64": 91}

libc = ctypes.CDLL(None, use_errno=True)


class ConfineError(OSError):
    """A layer could not be put in place."""


def checked(result: int, what: str) -> int:
    """`result` of a C call; raises ConfineError naming `what` if it failed."""
    if result < 0:
        code = ctypes.get_errno()
        raise ConfineError(code, f"{what}: {os.strerror(code)}")
    return result


def machine() -> str:
    """The architecture the filter is built for; raises ConfineError where there is no table."""
    name = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    if name not in AUDIT_ARCH:
        raise ConfineError(errno.ENOSYS, f"no system call table for {name}")
    return name


# --- seccomp -------------------------------------------------------------------------------------------


def _op(code: int, k: int, jt: int = 0, jf: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jt, jf, k)


def _argument(index: int, high: bool = False) -> bytes:
    """Load one half of a system call's argument (little endian)."""
    return _op(_LD, _ARG + 8 * index + 4 * high)


def _special(arch: str) -> list[bytes]:
    column = COLUMNS[arch]
    number = {name: numbers[column] for name, numbers in SPECIAL.items()}
    refuse, allow = _op(_RET, _ERRNO | errno.EPERM), _op(_RET, _ALLOW)
    fcntl = [_argument(1), *(_op(_JEQ, c, len(_FCNTL_ALLOWED) - i) for i, c in enumerate(_FCNTL_ALLOWED))]
    # prlimit64 may read limits (new limit pointer is null), never set them.
    prlimit = [_argument(2), _op(_JEQ, 0, 0, 3), _argument(2, high=True), _op(_JEQ, 0, 0, 1), allow, refuse]
    blocks = {
        "ioctl": [_op(_RET, _ERRNO | errno.ENOTTY)],
        "fcntl": [*fcntl, refuse, allow],
        "prlimit64": prlimit,
        "clone3": [_op(_RET, _ERRNO | errno.ENOSYS)],
    }
    out: list[bytes] = []
    for name, block in blocks.items():
        out += [_op(_JEQ, number[name], 0, len(block)), *block]
    return out


def build_filter(arch: str) -> bytes:
    """The seccomp program as an array of `struct sock_filter`, for `arch` ("x86_64" or "aarch64")."""
    column = COLUMNS[arch]
    program = [_op(_LD, _ARCH), _op(_JEQ, AUDIT_ARCH[arch], 1, 0), _op(_RET, _KILL), _op(_LD, _NR)]
    if arch == "x86_64":
        program += [_op(_JGE, _X32_BIT, 0, 1), _op(_RET, _KILL)]
    for table, verdict in ((ALLOWED, _ALLOW), (DEADLY, _KILL)):
        for numbers in table.values():
            if (number := numbers[column]) is not None:
                program += [_op(_JEQ, number, 0, 1), _op(_RET, verdict)]
    program += _special(arch)
    program.append(_op(_RET, _ERRNO | errno.EPERM))
    return b"".join(program)


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install_filter(program: bytes) -> None:
    """Install a seccomp program on this process; needs no_new_privs."""
    buffer = ctypes.create_string_buffer(program, len(program))
    struct_ = _FilterProgram(len(program) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    checked(libc.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(struct_), 0, 0), "seccomp filter")


# --- Landlock ------------------------------------------------------------------------------------------


def landlock_ruleset() -> int:
    """Descriptor of a ruleset that grants nothing: no file, no TCP, no signal or socket outside itself.

    Raises ConfineError on kernels without Landlock.
    """
    abi = checked(libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1), "Landlock")
    file_rights = {1: 13, 2: 14}.get(abi, 15 if abi < 5 else 16)
    handled = [(1 << file_rights) - 1]
    if abi >= 4:
        handled.append(0b11)  # bind and connect TCP
    if abi >= 6:
        handled.append(0b11)  # abstract unix sockets, signals
    attributes = struct.pack(f"={len(handled)}Q", *handled)
    size = ctypes.c_size_t(len(attributes))
    return checked(libc.syscall(_LANDLOCK_CREATE, attributes, size, 0), "Landlock ruleset")


def landlock_restrict(ruleset: int) -> None:
    """Apply a ruleset to this process; needs no_new_privs."""
    checked(libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "Landlock restriction")


# --- the rest ------------------------------------------------------------------------------------------


def own_address_space() -> int:
    """Size of this process's address space in bytes. Raises ConfineError where /proc is not there."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError as error:
        text = "without /proc/self/statm no memory limit can be set"
        raise ConfineError(error.errno, text) from error


def first_to_die() -> None:
    """When the machine runs out of memory, this process and its children go first."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # containers may forbid it


def set_limits(memory_bytes: int, descriptors: int) -> None:
    """Hard rlimits: `memory_bytes` of address space, no core file, no file growth, few descriptors."""
    limits = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, descriptors),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ]
    if memory_bytes:
        limits.append((resource.RLIMIT_AS, memory_bytes))
    for which, value in limits:
        resource.setrlimit(which, (value, value))


def die_with_parent() -> None:
    """SIGKILL for this process when its parent ends."""
    checked(libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0), "parent-death signal")


def no_new_privs() -> None:
    """No later exec can gain privileges; the condition for Landlock and the filter."""
    checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def drop_privileges(uid: int) -> None:
    """Leave root for `uid`, then give up every capability.

    Where only one id exists (a user namespace) or ids may not be changed, the id stays; it is a name without
    power once the capabilities are gone, and the bounding set keeps them from coming back.
    """
    if os.geteuid() == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EINVAL):
                raise
            _clear_bounding_set()
    header = struct.pack("=II", 0x20080522, 0)
    data = struct.pack("=6I", 0, 0, 0, 0, 0, 0)
    checked(libc.syscall(_CAPSET[machine()], header, data), "capset")
    checked(libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "dumpable")
    die_with_parent()  # changing ids clears it, so it comes last


def _clear_bounding_set() -> None:
    for capability in range(_LAST_CAPABILITY + 1):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            return  # past the last one, or not ours to change
