"""What the parent can see of another process: its number, processor time and memory."""

from __future__ import annotations

import ctypes
import resource
import sys
import time
from functools import cache
from typing import Any

_LIBPROC = "/usr/lib/libproc.dylib"
_COUNTS = "user system idle_wakeups interrupts pageins wired resident footprint start exit"


class _RusageInfo(ctypes.Structure):
    """`struct rusage_info_v0` of macOS; the two times are in ticks of the machine's clock."""

    _fields_ = (("uuid", ctypes.c_uint8 * 16), *((name, ctypes.c_uint64) for name in _COUNTS.split()))


class _Timebase(ctypes.Structure):
    _fields_ = (("numerator", ctypes.c_uint32), ("denominator", ctypes.c_uint32))


@cache
def _libproc() -> tuple[Any, float]:
    """macOS: the library, and seconds in one tick."""
    timebase = _Timebase()
    ctypes.CDLL(None).mach_timebase_info(ctypes.byref(timebase))
    return ctypes.CDLL(_LIBPROC), timebase.numerator / timebase.denominator / 1e9


def _darwin(pid: int) -> tuple[float, int]:
    library, tick = _libproc()
    info = _RusageInfo()
    if library.proc_pid_rusage(pid, 0, ctypes.byref(info)) != 0:
        return 0.0, 0
    return (info.user + info.system) * tick, max(info.resident, info.footprint)


def cpu_seconds(pid: int) -> float:
    """Processor time of process `pid`; 0.0 if it is gone or cannot be read."""
    if sys.platform == "darwin":
        return _darwin(pid)[0]
    try:
        return time.clock_gettime(~pid << 3 | 2)  # its clock id is computed as the C library does
    except OSError:
        return 0.0


def resident_bytes(pid: int) -> int:
    """Memory that process `pid` occupies; 0 if it is gone or cannot be read."""
    if sys.platform == "darwin":
        return _darwin(pid)[1]
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def outer_pid(pidfd: int) -> int:
    """The pid in our own namespace of the process behind `pidfd` (0 if it is gone or /proc is not there)."""
    try:
        with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
            lines = [line.split() for line in file]
    except OSError:
        return 0
    return max((int(line[1]) for line in lines if line[0] == "Pid:"), default=0)
