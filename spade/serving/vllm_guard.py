"""Runs one command and sees to it that nothing of it is left: `python vllm_guard.py SECONDS COMMAND...`

A server forks workers, and whoever started it may die without a chance to end them. So this small process, of
the standard library alone, stands between the two. It ends the command and all its descendants when its
standard input closes, which happens in whatever way the other end dies; when its parent changes; on SIGTERM;
and when the command ends by itself and leaves some behind. What does not end on SIGTERM within SECONDS is
killed. The exit code is the command's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

POLL_SECONDS = 0.25
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main(grace: float, command: list[str]) -> int:
    """Run `command` to its end, or until nobody wants it any more."""
    parent = os.getppid()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans of the command become children of this process
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to deal with
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_die_with_parent
    )
    while child.poll() is None and not asked and os.getppid() == parent:
        ready, _, _ = select.select([sys.stdin], [], [], POLL_SECONDS)
        if ready and not os.read(sys.stdin.fileno(), 1024):
            break
    _end(child, grace)
    code = child.returncode
    return code if code >= 0 else 128 - code


def _end(child: subprocess.Popen[bytes], grace: float) -> None:
    """End the command's group, then whatever else descends from this process."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        for pid in _children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        until = time.monotonic() + grace
        while time.monotonic() < until:
            child.poll()
            _reap(child.pid)
            if child.returncode is not None and not _children():
                return
            time.sleep(0.05)


def _children() -> list[int]:
    """Processes whose parent is this one, from /proc; none where there is no /proc."""
    me, found = os.getpid(), []
    with contextlib.suppress(OSError):
        for name in filter(str.isdigit, os.listdir("/proc")):
            with (
                contextlib.suppress(OSError, ValueError, IndexError),
                open(f"/proc/{name}/stat", "rb") as file,
            ):
                if int(file.read().rpartition(b")")[2].split()[1]) == me:
                    found.append(int(name))
    return found


def _reap(command: int) -> None:
    """Collect orphans that have ended; the command itself is left to `subprocess`."""
    for pid in _children():
        if pid != command:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _die_with_parent() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
