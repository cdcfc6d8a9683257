"""What machine a figure was measured on, and who else used it meanwhile. Linux only (reads /proc)."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from types import TracebackType

BUSY_CORES = 0.1
"""CPU use of others from which on a figure is marked: this share of one core."""
_TICKS = os.sysconf("SC_CLK_TCK")


def machine() -> dict[str, str | int]:
    """Processor, cores, memory in GiB, kernel and Python."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": names[0].partition(":")[2].strip() if names else platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def children(pid: int) -> list[int]:
    """Processes started by `pid` that still exist."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except OSError:
            continue  # a thread that ended meanwhile
    return found


def tree_seconds(pid: int, itself: bool = True) -> float:
    """CPU seconds of a process (or not) and everything it started, what ended and was waited for included."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    own = sum(map(int, fields[11 if itself else 13 : 15])) / _TICKS
    return own + sum(map(tree_seconds, children(pid)))


def machine_seconds() -> float:
    """CPU seconds of all cores that were not idle, those taken by the host of a virtual machine included."""
    user, nice, system, _, _, interrupt, soft, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + interrupt + soft + steal) / _TICKS


class Load:
    """Measures a section: its wall time, this process tree's CPU time, and the CPU use of everybody else."""

    def __enter__(self) -> Load:
        self._all, self._own = machine_seconds(), tree_seconds(os.getpid())
        self._start = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._start
        self.own = (tree_seconds(os.getpid()) - self._own) / self.seconds
        used = (machine_seconds() - self._all) / self.seconds
        self.others = max(0.0, used - self.own)
        """Cores kept busy by others, on average."""

    @property
    def busy(self) -> bool:
        """Whether others used enough for the wall times to mean little."""
        return self.others > BUSY_CORES
